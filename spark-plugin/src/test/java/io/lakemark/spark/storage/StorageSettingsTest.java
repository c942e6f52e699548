package io.lakemark.spark.storage;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/** Hadoop's settings of object stores in the words of the Rust library. */
class StorageSettingsTest {
  private static Access access(String place, String... settings) {
    return settings(settings).access(place).orElse(Access.NONE);
  }

  private static StorageSettings settings(String... settings) {
    Configuration configuration = new Configuration(false);
    for (int at = 0; at < settings.length; at += 2) {
      configuration.set(settings[at], settings[at + 1]);
    }
    return StorageSettings.of(configuration, Map.of());
  }

  private static Map<String, String> options(String... options) {
    Map<String, String> all = new TreeMap<>();
    for (int at = 0; at < options.length; at += 2) {
      all.put(options[at], options[at + 1]);
    }
    return all;
  }

  @Test
  void settingsOfABucketCountOverThoseOfAll() {
    String[] settings = {
      "fs.s3a.access.key",
      "all",
      "fs.s3a.secret.key",
      "s",
      "fs.s3a.endpoint.region",
      "r",
      "fs.s3a.bucket.lake.access.key",
      "own",
      "fs.s3a.bucket.lake.secret.key",
      "o",
      "fs.s3a.bucket.lake.session.token",
      "t"
    };
    assertEquals(
        options(
            "aws_access_key_id",
            "own",
            "aws_secret_access_key",
            "o",
            "aws_session_token",
            "t",
            "aws_region",
            "r"),
        access("s3a://lake/orders", settings).options());
    assertEquals(
        options("aws_access_key_id", "all", "aws_secret_access_key", "s", "aws_region", "r"),
        access("s3://other/orders", settings).options());
  }

  @Test
  void anEndpointHasItsSchemeAndTheBucketUnlessPathsHaveIt() {
    assertEquals(
        options(
            "aws_endpoint",
            "http://127.0.0.1:9000",
            "aws_virtual_hosted_style_request",
            "false",
            "aws_allow_http",
            "true"),
        access("s3a://lake/t", "fs.s3a.endpoint", "http://127.0.0.1:9000/").options());
    assertEquals(
        options(
            "aws_endpoint",
            "https://lake.store.example",
            "aws_virtual_hosted_style_request",
            "true"),
        access("s3a://lake/t", "fs.s3a.endpoint", "store.example").options());
    assertEquals(
        options(
            "aws_endpoint",
            "http://store.example",
            "aws_virtual_hosted_style_request",
            "false",
            "aws_allow_http",
            "true"),
        access(
                "s3a://lake/t",
                "fs.s3a.endpoint",
                "store.example",
                "fs.s3a.connection.ssl.enabled",
                "false",
                "fs.s3a.path.style.access",
                "true")
            .options());
    assertEquals(
        options("aws_region", "eu-north-1"),
        access("s3a://lake/t", "fs.s3a.endpoint", "s3.eu-north-1.amazonaws.com").options());
    assertEquals(Access.NONE, access("s3a://lake/t", "fs.s3a.endpoint", "s3.amazonaws.com"));
  }

  @Test
  void theFirstProviderThatHasCredentialsCounts() {
    String providers = "fs.s3a.aws.credentials.provider";
    String hadoop = "org.apache.hadoop.fs.s3a.";
    String[] keys = {"fs.s3a.access.key", "a", "fs.s3a.secret.key", "b"};
    Access anonymous =
        access("s3a://lake/t", providers, hadoop + "AnonymousAWSCredentialsProvider");
    assertEquals(options("aws_skip_signature", "true"), anonymous.options());
    Access role =
        access(
            "s3a://lake/t",
            providers,
            hadoop + "auth.IAMInstanceCredentialsProvider",
            keys[0],
            keys[1],
            keys[2],
            keys[3]);
    assertEquals(Access.NONE, role);
    Access simple =
        access(
            "s3a://lake/t",
            providers,
            hadoop + "SimpleAWSCredentialsProvider, my.Provider",
            keys[0],
            keys[1],
            keys[2],
            keys[3]);
    assertEquals(options("aws_access_key_id", "a", "aws_secret_access_key", "b"), simple.options());
    Access own =
        access(
            "s3a://lake/t",
            providers,
            hadoop + "TemporaryAWSCredentialsProvider,\n my.Provider,my.Other",
            "fs.s3a.assumed.role.arn",
            "arn");
    JsonNode asked = Json.read(own.provider());
    assertEquals("[\"my.Provider\",\"my.Other\"]", asked.get("classes").toString());
    assertEquals("s3a://lake", asked.get("place").asText());
    assertEquals("arn", asked.get("hadoop").get("fs.s3a.assumed.role.arn").asText());
  }

  @Test
  void anAccountOfAzureHasAKeyASignatureOrAClient() {
    String place = "abfss://files@lake.dfs.core.windows.net/t";
    assertEquals(
        options("azure_storage_account_key", "own"),
        access(
                place,
                "fs.azure.account.key.lake.dfs.core.windows.net",
                "own",
                "fs.azure.account.key",
                "all")
            .options());
    assertEquals(
        options("azure_storage_sas_token", "sv=1&sig=x"),
        access(
                place,
                "fs.azure.account.auth.type",
                "SAS",
                "fs.azure.sas.fixed.token.lake.dfs.core.windows.net",
                "sv=1&sig=x")
            .options());
    assertEquals(
        options(
            "azure_storage_authority_host",
            "https://login.microsoftonline.com",
            "azure_storage_client_id",
            "c",
            "azure_storage_client_secret",
            "s",
            "azure_storage_tenant_id",
            "tenant"),
        access(
                place,
                "fs.azure.account.auth.type",
                "OAuth",
                "fs.azure.account.oauth2.client.id",
                "c",
                "fs.azure.account.oauth2.client.secret",
                "s",
                "fs.azure.account.oauth2.client.endpoint",
                "https://login.microsoftonline.com/tenant/oauth2/token")
            .options());
    Access signed = access(place, "fs.azure.sas.token.provider.type", "my.Signatures");
    assertEquals("azure_signature", Json.read(signed.provider()).get("kind").asText());
    Access token =
        access(
            place,
            "fs.azure.account.auth.type",
            "Custom",
            "fs.azure.account.oauth.provider.type",
            "my.Tokens");
    assertEquals("azure_token", Json.read(token.provider()).get("kind").asText());
  }

  @Test
  void aBucketOfGoogleHasAFileAnAccountOrAClass() {
    assertEquals(
        options("google_service_account", "/key.json"),
        access("gs://lake/t", "fs.gs.auth.service.account.json.keyfile", "/key.json").options());
    Access account =
        access(
            "gs://lake/t",
            "fs.gs.auth.service.account.email",
            "m@x",
            "fs.gs.auth.service.account.private.key",
            "a\\nb");
    JsonNode key = Json.read(account.options().get("google_service_account_key"));
    assertEquals("m@x", key.get("client_email").asText());
    assertEquals("a\nb", key.get("private_key").asText());
    Access asked = access("gs://lake/t", "fs.gs.auth.access.token.provider", "my.Tokens");
    assertEquals("google", Json.read(asked.provider()).get("kind").asText());
  }

  @Test
  void optionsOfATableCountOverTheConfiguration() {
    Configuration configuration = new Configuration(false);
    configuration.set("fs.s3a.access.key", "session");
    configuration.set("fs.s3a.secret.key", "session");
    StorageSettings settings =
        StorageSettings.of(
            configuration,
            Map.of("FS.S3A.ACCESS.KEY", "table", "storage.aws_region", "r", "path", "s3a://lake"));
    Map<String, String> found = settings.access("s3a://lake/t").orElseThrow().options();
    assertEquals("table", found.get("aws_access_key_id"));
    assertEquals("r", found.get("aws_region"));
    Map<String, String> query =
        settings.with(Map.of("storage.aws_region", "q")).access("s3a://lake/t").get().options();
    assertEquals("q", query.get("aws_region"));
    assertTrue(StorageSettings.isOption("Storage.aws_region"));
    assertFalse(StorageSettings.isOption("store"));
  }

  @Test
  void defaultsOfHadoopAndLocalFilesSayNothing() {
    StorageSettings defaults = StorageSettings.of(new Configuration(), Map.of());
    assertNull(defaults.json("s3a://lake/t", null));
    assertNull(settings("fs.s3a.access.key", "a", "fs.s3a.secret.key", "b").json("/t", null));
    assertEquals("{\"store\":\"/s\"}", StorageSettings.NONE.json("/t", "/s"));
  }

  @Test
  void dataAndIndexesAreReachedEachByTheirBucket() {
    JsonNode said =
        Json.read(
            settings(
                    "fs.s3a.access.key", "a",
                    "fs.s3a.secret.key", "b",
                    "fs.s3a.bucket.index.access.key", "i",
                    "fs.s3a.bucket.index.secret.key", "j")
                .json("s3a://lake/t", "s3a://index/t"));
    assertEquals("a", said.get("data").get("options").get("aws_access_key_id").asText());
    assertEquals("i", said.get("indexes").get("options").get("aws_access_key_id").asText());
    assertEquals("s3a://index/t", said.get("store").asText());
  }

  @Test
  void settingsTravelAndAreNotPrinted() throws Exception {
    StorageSettings settings = settings("fs.s3a.access.key", "a", "fs.s3a.secret.key", "hidden");
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(settings);
    }
    try (ObjectInputStream in =
        new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
      assertEquals(settings, in.readObject());
    }
    assertFalse(settings.toString().contains("hidden"));
    assertFalse(settings.access("s3a://lake").orElseThrow().toString().contains("hidden"));
  }
}
