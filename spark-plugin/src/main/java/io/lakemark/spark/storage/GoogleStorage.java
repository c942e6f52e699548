package io.lakemark.spark.storage;

import io.lakemark.spark.jni.Json;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;

/**
 * A bucket as Google's connector for Hadoop knows it.
 *
 * <p>The names and what they mean are those of the connector's documentation.
 */
final class GoogleStorage {
  /** Newer and older names of the class that gives tokens. */
  private static final List<String> TOKEN_CLASSES =
      List.of("fs.gs.auth.access.token.provider", "fs.gs.auth.access.token.provider.impl");

  /** Newer and older beginnings of what is said of a service account. */
  private static final List<String> ACCOUNTS =
      List.of("fs.gs.auth.service.account.", "google.cloud.auth.service.account.");

  private final Configuration configuration;
  private final URI root;

  GoogleStorage(Configuration configuration, URI root) {
    this.configuration = configuration;
    this.root = root;
  }

  /** How the bucket is reached; {@code hadoop} is what classes see that give credentials. */
  Access access(Map<String, String> hadoop) {
    for (String setting : TOKEN_CLASSES) {
      String name = said(configuration.get(setting));
      if (name != null) {
        String place = root.toString();
        return new Access(
            Map.of(), Access.provider("google", setting, List.of(name), place, hadoop));
      }
    }
    Map<String, String> options = new TreeMap<>();
    for (String account : ACCOUNTS) {
      String file = said(configuration.get(account + "json.keyfile"));
      String mail = said(configuration.get(account + "email"));
      String key = secret(account + "private.key");
      if (file != null) {
        options.put("google_service_account", file);
      } else if (mail != null && key != null) {
        options.put("google_service_account_key", account(account, mail, key));
      }
    }
    return new Access(options, null);
  }

  /** A service account as the files of Google have it. */
  private String account(String account, String mail, String key) {
    Map<String, String> fields = new TreeMap<>();
    String id = secret(account + "private.key.id");
    fields.put("type", "service_account");
    fields.put("client_email", mail);
    fields.put("private_key", key.replace("\\n", "\n"));
    fields.put("private_key_id", id == null ? "" : id);
    return Json.write(fields);
  }

  private String secret(String name) {
    try {
      char[] found = configuration.getPassword(name);
      return found == null ? null : said(new String(found));
    } catch (IOException e) {
      throw new UncheckedIOException("the credentials of Hadoop cannot be read", e);
    }
  }

  private static String said(String value) {
    return value == null || value.isBlank() ? null : value.strip();
  }
}
