package io.lakemark.spark.catalog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.lakemark.spark.LakemarkException;
import java.util.List;
import org.junit.jupiter.api.Test;

class LakemarkProcedureTest {
  @Test
  void agesHaveAUnit() {
    assertEquals(604_800, LakemarkProcedure.seconds("7d"));
    assertEquals(129_600, LakemarkProcedure.seconds(" 36h"));
    assertEquals(1_209_600, LakemarkProcedure.seconds("2w"));
    for (String wrong : List.of("", "7", "d", "-1d", "1.5h", "1y", "9999999999999999w")) {
      assertThrows(
          LakemarkException.InvalidInput.class, () -> LakemarkProcedure.seconds(wrong), wrong);
    }
  }
}
