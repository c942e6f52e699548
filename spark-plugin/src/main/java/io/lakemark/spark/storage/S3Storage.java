package io.lakemark.spark.storage;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * A bucket as Hadoop's S3A knows it: settings of the bucket count over those of all buckets.
 *
 * <p>The names and what they mean are those of Hadoop's documentation of S3A.
 */
final class S3Storage {
  static final String PROVIDERS = "aws.credentials.provider";

  private static final String HADOOP_CLASSES = "org.apache.hadoop.fs.s3a.";
  static final String SIMPLE = HADOOP_CLASSES + "SimpleAWSCredentialsProvider";
  static final String TEMPORARY = HADOOP_CLASSES + "TemporaryAWSCredentialsProvider";

  private static final Set<String> ANONYMOUS =
      Set.of(
          HADOOP_CLASSES + "AnonymousAWSCredentialsProvider",
          "com.amazonaws.auth.AnonymousAWSCredentials",
          "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider");

  private static final Set<String> ENVIRONMENT =
      Set.of(
          "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider");

  /** What the library does by itself: the role of a machine, a container or a service account. */
  private static final Set<String> ROLES =
      Set.of(
          HADOOP_CLASSES + "auth.IAMInstanceCredentialsProvider",
          "com.amazonaws.auth.EC2ContainerCredentialsProviderWrapper",
          "com.amazonaws.auth.InstanceProfileCredentialsProvider",
          "com.amazonaws.auth.WebIdentityTokenCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.InstanceProfileCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider");

  /** Amazon's own addresses; the region is in them, if it is not the first one. */
  private static final Pattern AMAZON =
      Pattern.compile("s3(?:[.-](?:dualstack\\.)?([a-z0-9-]+))?\\.amazonaws\\.com");

  private static final Pattern NUMBERS = Pattern.compile("[0-9.]+|\\[.*\\]|localhost");

  private final Configuration configuration;
  private final URI root;
  private final String bucket;

  S3Storage(Configuration configuration, URI root) {
    this.configuration = configuration;
    this.root = root;
    this.bucket = root.getAuthority();
  }

  /** How the bucket is reached; {@code hadoop} is what classes see that give credentials. */
  Access access(Map<String, String> hadoop) {
    Map<String, String> options = new TreeMap<>();
    put(options, "aws_region", text("endpoint.region"));
    endpoint(options);
    proxy(options);
    encryption(options);
    if (isOn("requester.pays.enabled", false)) {
      options.put("aws_request_payer", "true");
    }
    return new Access(options, credentials(options, hadoop));
  }

  private void endpoint(Map<String, String> options) {
    String said = text("endpoint");
    if (said == null) {
      return;
    }
    boolean isSecure =
        said.contains("://") ? said.startsWith("https:") : isOn("connection.ssl.enabled", true);
    String host = said.substring(said.indexOf("://") < 0 ? 0 : said.indexOf("://") + 3);
    host = host.endsWith("/") ? host.substring(0, host.length() - 1) : host;
    Matcher amazon = AMAZON.matcher(host);
    if (amazon.matches()) {
      // The library makes the address of the region by itself.
      if (amazon.group(1) != null) {
        options.putIfAbsent("aws_region", amazon.group(1));
      }
      return;
    }
    // A bucket is no part of an address that is a number.
    boolean hasBucket =
        !isOn("path.style.access", false)
            && !NUMBERS.matcher(host.replaceFirst(":[0-9]+$", "")).matches();
    options.put(
        "aws_endpoint",
        (isSecure ? "https://" : "http://") + (hasBucket ? bucket + "." : "") + host);
    options.put("aws_virtual_hosted_style_request", Boolean.toString(hasBucket));
    if (!isSecure) {
      options.put("aws_allow_http", "true");
    }
  }

  private void proxy(Map<String, String> options) {
    String host = text("proxy.host");
    if (host != null) {
      String port = text("proxy.port");
      options.put("proxy_url", "http://" + host + (port == null ? "" : ":" + port));
    }
  }

  private void encryption(Map<String, String> options) {
    String algorithm = text("encryption.algorithm");
    algorithm = algorithm == null ? text("server-side-encryption-algorithm") : algorithm;
    if (algorithm == null) {
      return;
    }
    String key = secret("encryption.key");
    key = key == null ? secret("server-side-encryption.key") : key;
    switch (algorithm) {
      case "AES256", "SSE-S3" -> options.put("aws_server_side_encryption", "AES256");
      case "SSE-KMS" -> {
        options.put("aws_server_side_encryption", "aws:kms");
        put(options, "aws_sse_kms_key_id", key);
      }
      case "DSSE-KMS" -> {
        options.put("aws_server_side_encryption", "aws:kms:dsse");
        put(options, "aws_sse_kms_key_id", key);
      }
      case "SSE-C" -> {
        options.put("aws_server_side_encryption", "sse-c");
        put(options, "aws_sse_customer_key_base64", key);
      }
      default -> {
        // Encryption by the client: the library reads and writes none.
      }
    }
  }

  /** Puts keys among the options, or gives what is asked for them each time. */
  private String credentials(Map<String, String> options, Map<String, String> hadoop) {
    List<String> classes = classes();
    for (int at = 0; at < classes.size(); at++) {
      String name = classes.get(at);
      if (name.equals(SIMPLE) || name.equals(TEMPORARY)) {
        if (keys(options, name.equals(TEMPORARY))) {
          return null;
        }
      } else if (ANONYMOUS.contains(name)) {
        options.put("aws_skip_signature", "true");
        return null;
      } else if (ENVIRONMENT.contains(name)) {
        if (System.getenv("AWS_ACCESS_KEY_ID") != null) {
          return null;
        }
      } else if (ROLES.contains(name)) {
        return null;
      } else {
        return Access.provider(
            "s3",
            "fs.s3a." + PROVIDERS,
            classes.subList(at, classes.size()),
            root.toString(),
            hadoop);
      }
    }
    return null;
  }

  private List<String> classes() {
    String said = text(PROVIDERS);
    return said == null
        ? List.of(TEMPORARY, SIMPLE)
        : Arrays.stream(said.split("[,\\s]+", -1)).filter(name -> !name.isEmpty()).toList();
  }

  /** Puts the keys of the configuration among the options, if they are there. */
  private boolean keys(Map<String, String> options, boolean isTemporary) {
    List<String> keys = keys(isTemporary);
    if (keys.isEmpty()) {
      return false;
    }
    options.put("aws_access_key_id", keys.get(0));
    options.put("aws_secret_access_key", keys.get(1));
    if (isTemporary) {
      options.put("aws_session_token", keys.get(2));
    }
    return true;
  }

  /** Access key, secret key and, of temporary ones, the token of the session; none if one lacks. */
  List<String> keys(boolean isTemporary) {
    List<String> names = List.of("access.key", "secret.key", "session.token");
    List<String> wanted = isTemporary ? names : names.subList(0, 2);
    List<String> keys = wanted.stream().map(this::secret).filter(Objects::nonNull).toList();
    return keys.size() == wanted.size() ? keys : List.of();
  }

  private boolean isOn(String name, boolean otherwise) {
    String said = text(name);
    return said == null ? otherwise : said.equalsIgnoreCase("true");
  }

  /** The value of the bucket, or else of all buckets. */
  private String text(String name) {
    String own = said(configuration.get("fs.s3a.bucket." + bucket + "." + name));
    return own == null ? said(configuration.get("fs.s3a." + name)) : own;
  }

  /** The same of a value that may be in a file of credentials of Hadoop's. */
  private String secret(String name) {
    Configuration with = new Configuration(configuration);
    String files = "hadoop.security.credential.provider.path";
    List<String> paths = new ArrayList<>();
    for (String said : Arrays.asList(text("security.credential.provider.path"), with.get(files))) {
      if (said(said) != null) {
        paths.add(said);
      }
    }
    if (!paths.isEmpty()) {
      with.set(files, String.join(",", paths));
    }
    try {
      char[] own = with.getPassword("fs.s3a.bucket." + bucket + "." + name);
      char[] found = own == null ? with.getPassword("fs.s3a." + name) : own;
      return found == null ? null : said(new String(found));
    } catch (IOException e) {
      throw new UncheckedIOException("the credentials of Hadoop cannot be read", e);
    }
  }

  private static String said(String value) {
    return value == null || value.isBlank() ? null : value.strip();
  }

  private static void put(Map<String, String> options, String name, String value) {
    if (value != null) {
      options.put(name, value);
    }
  }
}
