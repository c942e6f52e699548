package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.jni.Json;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.NavigableSet;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.sql.connector.catalog.Identifier;

/**
 * The folders below a path. One that holds data is a table, any other is a namespace. Beside them
 * are small files that name tables elsewhere.
 */
public final class Warehouse {
  /** What the file of a remembered table adds to its name. */
  private static final String REMEMBERED = ".lakemark.json";

  private final String root;
  private final Configuration configuration;

  /**
   * Of the folders below a path or URL, on any file system that the configuration of Hadoop has.
   */
  public Warehouse(String root, Configuration configuration) {
    this.root =
        root.length() > 1 && root.endsWith("/") ? root.substring(0, root.length() - 1) : root;
    this.configuration = configuration;
  }

  /** The options of the table of this name, if there is one. */
  public Optional<Map<String, String>> find(Identifier table) {
    String folder = folder(table.namespace());
    Optional<Map<String, String>> remembered = remembered(folder, table.name());
    if (remembered.isPresent()) {
      return remembered;
    }
    String path = folder + "/" + table.name();
    return isHidden(table.name()) || !isTable(path)
        ? Optional.empty()
        : Optional.of(Map.of("path", path));
  }

  /** The names of the tables in a namespace; none if there is no such namespace. */
  public Optional<NavigableSet<String>> tables(String[] namespace) {
    return children(namespace, true);
  }

  /** The names of the namespaces in a namespace; none if there is no such namespace. */
  public Optional<NavigableSet<String>> namespaces(String[] namespace) {
    return children(namespace, false);
  }

  private Optional<NavigableSet<String>> children(String[] namespace, boolean tables) {
    String folder = folder(namespace);
    NavigableSet<String> names = new TreeSet<>();
    try {
      for (FileStatus child : fileSystem().listStatus(new Path(folder))) {
        String name = child.getPath().getName();
        if (child.isDirectory()) {
          if (!isHidden(name) && isTable(folder + "/" + name) == tables) {
            names.add(name);
          }
        } else if (tables && name.endsWith(REMEMBERED)) {
          names.add(name.substring(0, name.length() - REMEMBERED.length()));
        }
      }
      return Optional.of(names);
    } catch (FileNotFoundException e) {
      return Optional.empty();
    } catch (IOException e) {
      throw failure(folder, e);
    }
  }

  /** Whether there is such a folder, and no table in its place. */
  public boolean isNamespace(String[] namespace) {
    String folder = folder(namespace);
    try {
      return fileSystem().getFileStatus(new Path(folder)).isDirectory()
          && (namespace.length == 0 || !isTable(folder));
    } catch (FileNotFoundException e) {
      return false;
    } catch (IOException e) {
      throw failure(folder, e);
    }
  }

  /** Makes the folder of a namespace. */
  public void createNamespace(String[] namespace) {
    String folder = folder(namespace);
    try {
      fileSystem().mkdirs(new Path(folder));
    } catch (IOException e) {
      throw failure(folder, e);
    }
  }

  /** Removes the folder of a namespace; says whether it was empty and is gone. */
  public boolean dropNamespace(String[] namespace) {
    String folder = folder(namespace);
    try {
      Path path = new Path(folder);
      return fileSystem().listStatus(path).length == 0 && fileSystem().delete(path, false);
    } catch (IOException e) {
      throw failure(folder, e);
    }
  }

  /** Remembers a table that is elsewhere; says whether the name was free. */
  public boolean remember(Identifier table, Map<String, String> options) {
    Path file = file(folder(table.namespace()), table.name());
    // The name is claimed by the creation of the file, so that of two sessions one gets it.
    try (OutputStream out = fileSystem().create(file, false)) {
      out.write(Json.write(options).getBytes(StandardCharsets.UTF_8));
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    } catch (IOException e) {
      throw failure(file.toString(), e);
    }
  }

  /** Forgets a table that was remembered; says whether it was. Its data stay. */
  public boolean forget(Identifier table) {
    Path file = file(folder(table.namespace()), table.name());
    try {
      return fileSystem().delete(file, false);
    } catch (IOException e) {
      throw failure(file.toString(), e);
    }
  }

  private Optional<Map<String, String>> remembered(String folder, String name) {
    Path file = file(folder, name);
    try (InputStream in = fileSystem().open(file)) {
      JsonNode read = Json.read(new String(in.readAllBytes(), StandardCharsets.UTF_8));
      Map<String, String> options = new HashMap<>();
      read.properties().forEach(each -> options.put(each.getKey(), each.getValue().asText()));
      return Optional.of(options);
    } catch (FileNotFoundException e) {
      return Optional.empty();
    } catch (IOException e) {
      throw failure(file.toString(), e);
    }
  }

  /** Data are Parquet files, folders of partitions, or the log of a Delta table. */
  private boolean isTable(String folder) {
    try {
      RemoteIterator<FileStatus> children = fileSystem().listStatusIterator(new Path(folder));
      while (children.hasNext()) {
        FileStatus child = children.next();
        String name = child.getPath().getName();
        boolean isData =
            child.isDirectory()
                ? name.equals("_delta_log") || name.equals("_lakemark") || isPartition(name)
                : name.endsWith(".parquet") && !isHidden(name);
        if (isData) {
          return true;
        }
      }
      return false;
    } catch (FileNotFoundException e) {
      return false;
    } catch (IOException e) {
      throw failure(folder, e);
    }
  }

  private static boolean isPartition(String name) {
    return name.indexOf('=') > 0 && !isHidden(name);
  }

  private static boolean isHidden(String name) {
    return name.startsWith("_") || name.startsWith(".");
  }

  private Path file(String folder, String name) {
    return new Path(folder + "/" + checked(name) + REMEMBERED);
  }

  private String folder(String[] namespace) {
    StringBuilder folder = new StringBuilder(root);
    Arrays.stream(namespace).forEach(part -> folder.append('/').append(checked(part)));
    return folder.toString();
  }

  /** Names stay below the warehouse. */
  private static String checked(String name) {
    if (name.isEmpty() || name.equals(".") || name.equals("..") || name.indexOf('/') >= 0) {
      throw new LakemarkException.InvalidInput(
          "\"" + name + "\" is no name of a table or namespace; write one without slashes");
    }
    return name;
  }

  private FileSystem fileSystem() throws IOException {
    return new Path(root).getFileSystem(configuration);
  }

  private LakemarkException failure(String place, IOException e) {
    return new LakemarkException.Io(
        "the warehouse cannot be used at " + place + ": " + e.getMessage());
  }
}
