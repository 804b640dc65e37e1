import pytest

from specpair.errors import InvalidFieldError
from specpair.server.config import ServerConfig


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1:50051"), ("::1", "[::1]:50051"), ("localhost", "localhost:50051")]
)
def test_address(host: str, address: str) -> None:
    assert ServerConfig(host=host, port=50051).address == address


@pytest.mark.parametrize(
    ("field", "value"), [("port", -1), ("port", 65536), ("grace_seconds", -0.1), ("max_message_bytes", 0)]
)
def test_value_out_of_range_names_the_field(field: str, value: float) -> None:
    with pytest.raises(InvalidFieldError, match=field):
        ServerConfig(**{"port": 0, field: value})
