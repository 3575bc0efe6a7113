"""Keys, encrypted IDs and sealed messages of the counting protocol.

An ID becomes 12 bytes by a keyed hash, gets the 4-byte index of its copy, and these 16 bytes are
one block of AES-256.  Equal IDs must look equal at the server, and nothing else may.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints
from fedkit.extras import need
from fedkit.fedvalue.protocol.messages import ID_BYTES, KEY_BYTES

_ciphers = need("cryptography.hazmat.primitives.ciphers", "vertical")
_aead = need("cryptography.hazmat.primitives.ciphers.aead", "vertical")
_InvalidTag = need("cryptography.exceptions", "vertical").InvalidTag

#: bytes of an ID after the keyed hash; the other 4 bytes of a block hold the index of the copy
HASH_BYTES = 12
_NONCE_BYTES = 12
#: IDs that are hashed at once; Python's objects are large
_AT_ONCE = 2**18

#: an ID as bytes, by its type; 7 is not "7"
_TEXTS: dict[type, Callable[[Any], bytes]] = {
    int: b"i%d".__mod__,
    str: lambda item: b"s" + item.encode(),
    bytes: b"b".__add__,
}


class SealError(ValueError):
    """A sealed message that was damaged, swapped, or sealed with another key."""


def new_key() -> bytes:
    """Return 32 random bytes for the parties to share; never hand them to the server."""
    return secrets.token_bytes(KEY_BYTES)


def derive(key: bytes, *names: str | int | bytes) -> bytes:
    """Return the 32-byte key of a purpose: keyed BLAKE2b of the names, each with its length."""
    return hashlib.blake2b(_joined(names), key=key, digest_size=KEY_BYTES).digest()


def digest(key: bytes, purpose: str, data: bytes, size: int) -> bytes:
    """Return a keyed digest of data for a purpose, in `size` bytes."""
    return hashlib.blake2b(data, key=derive(key, purpose), digest_size=size).digest()


def hash_ids(ids: Any, key: bytes) -> npt.NDArray[np.uint8]:
    """Turn IDs (str, int or bytes; 7 is not "7") into ``uint8[n, 12]`` by keyed BLAKE2b.

    Two of 10^6 different IDs meet with probability below 10^-16.
    """
    start = hashlib.blake2b(key=derive(key, "hash"), digest_size=HASH_BYTES).copy

    def hashed(item: Any) -> bytes:
        state = start()
        state.update(_TEXTS[type(item)](item))
        return state.digest()

    parts = []
    for begin in range(0, len(ids), _AT_ONCE):
        some = ids[begin : begin + _AT_ONCE]
        listed = some.tolist() if isinstance(some, np.ndarray) else some
        items = [item.item() if isinstance(item, np.generic) else item for item in listed]
        for wrong in set(map(type, items)) - _TEXTS.keys():
            item = next(item for item in items if type(item) is wrong)
            raise ValueError(f"an ID is {item!r} ({wrong.__name__}); use str, int or bytes")
        parts.append(b"".join(map(hashed, items)))
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, HASH_BYTES)


def encrypt_blocks(blocks: npt.NDArray[np.uint8], key: bytes) -> npt.NDArray[np.uint8]:
    """Encrypt different single blocks, ``uint8[N, 16]``, with AES-256."""
    encryptor = _aes(key, _ciphers.modes.ECB())
    text = encryptor.update(np.ascontiguousarray(blocks).data.cast("B")) if len(blocks) else b""
    return np.frombuffer(text, dtype=np.uint8).reshape(-1, ID_BYTES)


class Stream:
    """Secret random numbers from a key and a name: the keystream of AES-256 in counter mode.

    The same key and name give the same numbers, so a job that is repeated is the same job.
    """

    def __init__(self, key: bytes, *names: str | int | bytes):
        self._encryptor = _aes(derive(key, "stream", *names), _ciphers.modes.CTR(bytes(16)))

    def bytes(self, size: int) -> bytes:
        return self._encryptor.update(bytes(size))

    def integers(self, low: int, high: int, size: int) -> Ints:
        """Return whole numbers in low, ..., high - 1 (bias below (high - low) / 2^64)."""
        return (self._words(size) % np.uint64(high - low)).astype(np.int64) + low

    def integer(self, low: int, high: int) -> int:
        return int(self.integers(low, high, 1)[0])

    def permutation(self, size: int) -> Ints:
        return np.argsort(self._words(size))

    def _words(self, size: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * size), dtype="<u8").astype(np.uint64, copy=False)


def seal(message: bytes, key: bytes, *context: str | int) -> bytes:
    """Encrypt and authenticate a message (AES-256-GCM), bound to its context.

    The nonce is a keyed hash of context and message: the same message again gives the same bytes.
    """
    bound = _joined(context)
    nonce = digest(key, "nonce", _joined([bound, message]), _NONCE_BYTES)
    return nonce + bytes(_gcm(key).encrypt(nonce, message, bound))


def unseal(sealed: bytes, key: bytes, *context: str | int) -> bytes:
    """Open what :func:`seal` made with this key for the same context; else a SealError."""
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return _gcm(key).decrypt(nonce, text, _joined(context))
    except (_InvalidTag, ValueError) as error:
        raise SealError(
            f"a sealed message for {' / '.join(map(str, context))} does not open: it was changed, "
            "belongs elsewhere, or the parties' keys differ"
        ) from error


def _joined(names: Iterable[str | int | bytes]) -> bytes:
    """Write names, each with its type and length: different lists give different bytes."""
    parts = []
    for name in names:
        text = name if isinstance(name, bytes) else str(name).encode()
        part = type(name).__name__.encode() + b":" + text
        parts.append(len(part).to_bytes(8, "little") + part)
    return b"".join(parts)


def _gcm(key: bytes) -> Any:
    return _aead.AESGCM(derive(key, "seal"))


def _aes(key: bytes, mode: Any) -> Any:
    return _ciphers.Cipher(_ciphers.algorithms.AES(key), mode).encryptor()
