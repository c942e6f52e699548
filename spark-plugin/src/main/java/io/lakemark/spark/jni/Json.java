package io.lakemark.spark.jni;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.LakemarkException;
import java.util.List;

/** JSON by Spark's own Jackson. */
public final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  /** The text of a tree, or of maps, lists, texts and numbers. */
  public static String write(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot write JSON: " + e.getMessage());
    }
  }

  /** An object without fields, for whoever builds a request. */
  public static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  /** An array without elements, for whoever builds a request. */
  public static ArrayNode list() {
    return list(List.of());
  }

  /** An array of these texts, in their order. */
  public static ArrayNode list(List<String> texts) {
    ArrayNode list = MAPPER.createArrayNode();
    texts.forEach(list::add);
    return list;
  }

  /** The tree of a text of the native library. One that is no JSON is a defect of ours. */
  public static JsonNode read(String text) {
    try {
      return MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot read JSON: " + e.getMessage());
    }
  }
}
