"""The client of Unity Catalog that Delta brings, and the server of our tests: what ours understands is the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from unity import Unity, unity_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NAME = "main.sales.trips"
METASTORE = "/api/2.1/unity-catalog/metastore_summary"
KEYS = {"access_key_id": "somebody", "secret_access_key": "the-secret-key", "session_token": "token-1"}


@pytest.fixture
def unity() -> Iterator[Unity]:
    with unity_server() as unity:
        unity.tokens = {"of-delta"}
        unity.give = lambda: {"aws_temp_credentials": KEYS}
        unity.add(NAME, "s3://lake/trips")
        yield unity


def test_the_client_of_delta_is_told_where_a_table_is_and_gets_keys(spark: SparkSession, unity: Unity) -> None:
    java = spark._jvm.io  # noqa: SLF001 - PySpark has no other way to Java
    client = java.unitycatalog.client
    provider = client.auth.TokenProvider.create({"type": "static", "token": "of-delta"})
    asks = client.ApiClientBuilder.create().uri(unity.url).tokenProvider(provider).build()
    table = client.api.TablesApi(asks).getTable(NAME, True, True)
    assert (table.getStorageLocation(), table.getDataSourceFormat().toString()) == ("s3://lake/trips", "DELTA")
    read = client.model.TableOperation.READ
    question = client.model.GenerateTemporaryTableCredential().tableId(table.getTableId()).operation(read)
    given = client.api.TemporaryCredentialsApi(asks).generateTemporaryTableCredentials(question)
    assert given.getAwsTempCredentials().getSessionToken() == "token-1"
    assert (given.getExpirationTime() > 0, unity.given) == (True, ["READ"])
    coordinator = java.delta.storage.commit.uccommitcoordinator.UCTokenBasedRestClient(unity.url, provider, {})
    assert coordinator.getMetastoreId() == unity.answer("GET", METASTORE, "of-delta", None)["metastore_id"]


def test_the_client_of_delta_learns_that_there_is_no_table(spark: SparkSession, unity: Unity) -> None:
    client = spark._jvm.io.unitycatalog.client  # noqa: SLF001 - as above
    provider = client.auth.TokenProvider.create({"type": "static", "token": "of-delta"})
    asks = client.ApiClientBuilder.create().uri(unity.url).tokenProvider(provider).build()
    with pytest.raises(Py4JJavaError, match="TABLE_DOES_NOT_EXIST"):
        client.api.TablesApi(asks).getTable("main.sales.none", True, True)
