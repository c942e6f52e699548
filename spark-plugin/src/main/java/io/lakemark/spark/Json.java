package io.lakemark.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;

/** JSON by Spark's own Jackson. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  static String write(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot write JSON: " + e.getMessage());
    }
  }

  static ArrayNode list() {
    return MAPPER.createArrayNode();
  }

  static JsonNode read(String text) {
    try {
      return MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot read JSON: " + e.getMessage());
    }
  }
}
