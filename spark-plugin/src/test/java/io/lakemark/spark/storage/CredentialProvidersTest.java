package io.lakemark.spark.storage;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import java.net.URI;
import java.time.Instant;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/** Classes that give credentials, found by what they are called. */
class CredentialProvidersTest {
  private static final Map<String, String> HADOOP =
      Map.of("fs.s3a.access.key", "a", "fs.s3a.secret.key", "b", "my.token", "t");

  private static JsonNode asked(String kind, String place, Class<?>... classes) {
    List<String> names = Arrays.stream(classes).map(Class::getName).toList();
    String provider = Access.provider(kind, "the.setting", names, place, HADOOP);
    CredentialProviders.prepare();
    return Json.read(CredentialProviders.credentials(provider));
  }

  /** Temporary keys, as Amazon's second library has them. */
  record Keys(String accessKeyId, String secretAccessKey, String sessionToken) {
    public Optional<Instant> expirationTime() {
      return Optional.of(Instant.ofEpochMilli(5000));
    }
  }

  static final class OfPlace {
    private final String bucket;
    private final String token;

    OfPlace(URI place, Configuration configuration) {
      bucket = place.getHost();
      token = configuration.get("my.token");
    }

    public Keys resolveCredentials() {
      return new Keys(bucket, "secret", token);
    }
  }

  /** Lasting keys, as Amazon's first library has them. */
  static final class Lasting {
    public String getAWSAccessKeyId() {
      return "first";
    }

    public String getAWSSecretKey() {
      return "secret";
    }
  }

  static final class OfFactory {
    private OfFactory() {}

    public static OfFactory create() {
      return new OfFactory();
    }

    public Lasting getCredentials() {
      return new Lasting();
    }
  }

  /** Keys that last, of a class that has a method for a token. */
  static final class WithoutToken {
    public Keys resolveCredentials() {
      return new Keys("lasting", "secret", null);
    }
  }

  static final class Silent {
    @SuppressWarnings("DoNotCallSuggester") // It is called by its name.
    public Keys resolveCredentials() {
      throw new IllegalStateException();
    }
  }

  static final class Failing implements AutoCloseable {
    private static int closed;

    @SuppressWarnings("DoNotCallSuggester") // It is called by its name.
    public Keys resolveCredentials() {
      throw new IllegalStateException("the role may not be taken\nat line 2");
    }

    @Override
    public void close() {
      closed++;
    }
  }

  static final class Signatures {
    private String account;

    public void initialize(Configuration configuration, String ofAccount) {
      account = ofAccount;
    }

    public String getSASToken(String of, String container, String path, String operation) {
      assertEquals(account, of);
      return "sv=1&se=1970-01-01T00%3A00%3A05Z&sig=" + container;
    }
  }

  static final class Tokens {
    private String account;

    public void initialize(Configuration configuration, String ofAccount) {
      account = ofAccount;
    }

    public String getAccessToken() {
      return account + " token";
    }

    public Date getExpiryTime() {
      return Date.from(Instant.ofEpochMilli(5000));
    }
  }

  record Token(String getToken, Long getExpirationTimeMilliSeconds) {}

  static final class GoogleTokens {
    private Configuration configuration;

    public void setConf(Configuration of) {
      configuration = of;
    }

    public Token getAccessToken() {
      return new Token(configuration.get("my.token"), 5000L);
    }
  }

  @Test
  void keysOfS3ComeFromAnyClassThatHasTheMethods() {
    assertEquals(
        Json.read(
            "{\"key_id\":\"lake\",\"secret_key\":\"secret\",\"session_token\":\"t\",\"expires_ms\":5000}"),
        asked("s3", "s3a://lake", OfPlace.class));
    assertEquals(
        Json.read("{\"key_id\":\"first\",\"secret_key\":\"secret\"}"),
        asked("s3", "s3a://lake", OfFactory.class));
    JsonNode lasting = asked("s3", "s3a://lake", WithoutToken.class);
    assertEquals("lasting", lasting.get("key_id").asText());
    assertFalse(lasting.has("session_token"));
  }

  @Test
  void theFirstClassThatGivesCredentialsCounts() {
    assertEquals(
        "lake", asked("s3", "s3a://lake", Failing.class, OfPlace.class).get("key_id").asText());
    String simple =
        Access.provider("s3", "s", List.of("no.Such", S3Storage.SIMPLE), "s3a://lake", HADOOP);
    assertEquals("a", Json.read(CredentialProviders.credentials(simple)).get("key_id").asText());
  }

  @Test
  void signaturesAndTokensEndWhenTheySay() {
    String place = "abfss://files@lake.dfs.core.windows.net";
    JsonNode signature = asked("azure_signature", place, Signatures.class);
    assertTrue(signature.get("signature").asText().endsWith("sig=files"));
    assertEquals(5000, signature.get("expires_ms").asLong());
    assertEquals(
        Json.read("{\"token\":\"lake token\",\"expires_ms\":5000}"),
        asked("azure_token", place, Tokens.class));
    assertEquals(
        Json.read("{\"token\":\"t\",\"expires_ms\":5000}"),
        asked("google", "gs://lake", GoogleTokens.class));
  }

  @Test
  void whyThereAreNoneIsToldInOneSentence() {
    String said = asked("s3", "s3a://lake", Failing.class, String.class).get("error").asText();
    assertTrue(said.startsWith("no class of the.setting gives credentials for s3a://lake: "), said);
    assertTrue(said.contains("says: the role may not be taken; "), said);
    assertFalse(said.contains("line 2"), said);
    int before = Failing.closed;
    asked("s3", "s3a://lake", Failing.class);
    assertEquals(before + 1, Failing.closed);
    String silent = asked("s3", "s3a://lake", Silent.class).get("error").asText();
    assertTrue(silent.endsWith("fails with java.lang.IllegalStateException"), silent);
    String missing = Access.provider("s3", "s", List.of("no.Such"), "s3a://lake", HADOOP);
    String error = Json.read(CredentialProviders.credentials(missing)).get("error").asText();
    assertTrue(
        error.contains("no.Such needs a jar that is not there: add it by --packages"), error);
    assertFalse(error.contains("\"b\""), error);
  }
}
