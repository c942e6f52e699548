package io.lakemark.spark.storage;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * A container as Hadoop's ABFS knows it: settings that end in the account count over those that do
 * not.
 *
 * <p>The names and what they mean are those of Hadoop's documentation of ABFS.
 */
final class AzureStorage {
  static final String SIGNATURE_CLASS = "fs.azure.sas.token.provider.type";
  static final String TOKEN_CLASS = "fs.azure.account.oauth.provider.type";

  private static final String HADOOP_CLASSES = "org.apache.hadoop.fs.azurebfs.oauth2.";

  /** Where a tenant signs in: {@code https://login.microsoftonline.com/TENANT/oauth2/token}. */
  private static final Pattern SIGN_IN = Pattern.compile("(https://[^/]+)/([^/]+)/.*");

  private final Configuration configuration;
  private final URI root;
  private final String host;

  AzureStorage(Configuration configuration, URI root) {
    this.configuration = configuration;
    this.root = root;
    this.host = root.getHost() == null ? "" : root.getHost();
  }

  /** How the container is reached; {@code hadoop} is what classes see that give credentials. */
  Access access(Map<String, String> hadoop) {
    Map<String, String> options = new TreeMap<>();
    String kind = text("fs.azure.account.auth.type");
    String key = secret("fs.azure.account.key");
    String signature = secret("fs.azure.sas.fixed.token");
    String signatureClass = text(SIGNATURE_CLASS);
    String provider = null;
    if ("OAuth".equalsIgnoreCase(kind) || "Custom".equalsIgnoreCase(kind)) {
      provider = token(options, hadoop);
    } else if (signatureClass != null && (kind == null || "SAS".equalsIgnoreCase(kind))) {
      provider = provider("azure_signature", SIGNATURE_CLASS, signatureClass, hadoop);
    } else if (signature != null && !"SharedKey".equalsIgnoreCase(kind)) {
      options.put("azure_storage_sas_token", signature);
    } else if (key != null) {
      options.put("azure_storage_account_key", key);
    }
    return new Access(options, provider);
  }

  private String token(Map<String, String> options, Map<String, String> hadoop) {
    String name = text(TOKEN_CLASS);
    String client = secret("fs.azure.account.oauth2.client.id");
    if (name == null || name.equals(HADOOP_CLASSES + "ClientCredsTokenProvider")) {
      put(options, "azure_storage_client_id", client);
      put(options, "azure_storage_client_secret", secret("fs.azure.account.oauth2.client.secret"));
      String signIn = text("fs.azure.account.oauth2.client.endpoint");
      Matcher parts = SIGN_IN.matcher(signIn == null ? "" : signIn);
      if (parts.matches()) {
        options.put("azure_storage_authority_host", parts.group(1));
        options.put("azure_storage_tenant_id", parts.group(2));
      }
      return null;
    }
    if (name.startsWith(HADOOP_CLASSES)) {
      // Identities of machines and services, which the library asks for by itself.
      put(options, "azure_storage_client_id", client);
      put(options, "azure_storage_tenant_id", text("fs.azure.account.oauth2.msi.tenant"));
      put(options, "azure_federated_token_file", text("fs.azure.account.oauth2.token.file"));
      return null;
    }
    return provider("azure_token", TOKEN_CLASS, name, hadoop);
  }

  private String provider(String kind, String setting, String name, Map<String, String> hadoop) {
    return Access.provider(kind, setting, List.of(name), root.toString(), hadoop);
  }

  /** The value of the account, or else of all accounts. */
  private String text(String name) {
    String own = said(configuration.get(name + "." + host));
    return own == null ? said(configuration.get(name)) : own;
  }

  private String secret(String name) {
    try {
      char[] own = configuration.getPassword(name + "." + host);
      char[] found = own == null ? configuration.getPassword(name) : own;
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
