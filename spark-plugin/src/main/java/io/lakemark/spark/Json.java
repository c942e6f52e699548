package io.lakemark.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

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

  static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  static ArrayNode list() {
    return list(List.of());
  }

  static ArrayNode list(List<String> texts) {
    ArrayNode list = MAPPER.createArrayNode();
    texts.forEach(list::add);
    return list;
  }

  static JsonNode read(String text) {
    try {
      return MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new LakemarkException.Internal("cannot read JSON: " + e.getMessage());
    }
  }
}
