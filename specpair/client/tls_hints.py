"""Explains TLS failures, for which gRPC only reports UNAVAILABLE."""

_CERTAIN = {
    "CERTIFICATE_VERIFY_FAILED": "TLS: the server's certificate has expired, or no trusted authority issued it",
    "WRONG_VERSION_NUMBER": "TLS: the server speaks plain text",
    "Hostname Verification Check failed": "TLS: the server's certificate has another name than its host",
}
_NO_CONNECTION = "failed to connect"
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe")


def tls_hint(details: str, *, speaks_tls: bool) -> str | None:
    """The probable cause, from the details of an UNAVAILABLE; None if it does not look like TLS."""
    for sign, hint in _CERTAIN.items():
        if sign in details:
            return hint
    if _NO_CONNECTION not in details or not any(sign in details for sign in _HUNG_UP):
        return None
    if speaks_tls:
        return "it closed the connection; TLS: perhaps it requires a certificate of another authority"
    return "it closed the connection; perhaps it speaks TLS, or is about to stop"
