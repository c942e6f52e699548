"""The container in the second reader, made from sections 1 to 3 of docs/format.md alone: fields and checked pages."""

from __future__ import annotations

import struct

MAGIC = b"LAKEMARK"
VERSION = 6
LIST = 23
HASHED = 24


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Cursor:
    """Fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        piece = self.data[self.at : self.at + length]
        assert len(piece) == length, "cut short"
        self.at += length
        return piece

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def signed(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert byte or shift == 7, "not the shortest form"
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def blob(self) -> bytes:
        return self.take(self.varint())

    def string(self) -> str:
        return self.blob().decode()

    def varints(self) -> list[int]:
        return [self.varint() for _ in range(self.varint())]

    def packed(self, count: int, width: int) -> list[int]:
        bits = int.from_bytes(self.take((count * width + 7) // 8), "little")
        return [bits >> (i * width) & ((1 << width) - 1) for i in range(count)]

    def key_type(self) -> tuple[int, ...]:
        code = self.number(1)
        if code == 22:
            return (code, *(field for _ in range(self.varint()) for field in self.key_type()))
        if code == LIST:
            return (code, *self.key_type())
        if code == HASHED:
            return (code, self.number(1), *self.key_type())
        widths = {13: (2, 1, 1), 16: (1,), 17: (1,), 18: (1, 1), 21: (4,)}.get(code, ())
        return (code, *(self.number(width) for width in widths))

    def left(self) -> int:
        return len(self.data) - self.at

    def end(self) -> None:
        assert self.at == len(self.data), "bytes left over"


def open_container(data: bytes) -> tuple[int, bytes, bytes]:
    """The content kind, the stream and the directory, with every checksum verified."""
    trailer = data[-64:]
    fields = struct.unpack("<QQQII16sBBHI8s", trailer)
    stream_length, offset, file_length, length, directory_crc, file_id, kind, reserved, version, crc, magic = fields
    assert (magic, version, reserved, file_length) == (MAGIC, VERSION, 0, len(data))
    assert crc == crc32c(file_id + struct.pack("<Q", 2**64 - 2) + trailer[:52])
    assert offset == stream_length + 4 * -(-stream_length // 4092)
    assert file_length == offset + length + 64
    stream = b""
    for number, start in enumerate(range(0, offset, 4096)):
        page = data[start : min(start + 4096, offset)]
        assert crc32c(file_id + struct.pack("<Q", number) + page[:-4]) == int.from_bytes(page[-4:], "little")
        stream += page[:-4]
    directory = data[offset : offset + length]
    assert directory_crc == crc32c(file_id + b"\xff" * 8 + directory)
    assert stream[:64] == MAGIC + bytes([VERSION, 0, kind]) + bytes(5) + file_id + bytes(32)
    return kind, stream, directory
