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

  public static String write(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot write JSON: " + e.getMessage());
    }
  }

  public static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  public static ArrayNode list() {
    return list(List.of());
  }

  public static ArrayNode list(List<String> texts) {
    ArrayNode list = MAPPER.createArrayNode();
    texts.forEach(list::add);
    return list;
  }

  public static JsonNode read(String text) {
    try {
      return MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot read JSON: " + e.getMessage());
    }
  }
}
