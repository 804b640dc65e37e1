"""What is wrong with TLS, where gRPC says no more than UNAVAILABLE."""

_CERTAIN = {
    "CERTIFICATE_VERIFY_FAILED": "TLS: the server's certificate is of no authority that is trusted here, or too old",
    "WRONG_VERSION_NUMBER": "TLS: the server speaks plain text",
    "Hostname Verification Check failed": "TLS: the server's certificate has another name than its host",
}
_NO_CONNECTION = "failed to connect"
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe")


def tls_hint(details: str, *, speaks_tls: bool) -> str | None:
    """What is probably wrong, by the details of an UNAVAILABLE; None where it does not look like TLS."""
    for sign, hint in _CERTAIN.items():
        if sign in details:
            return hint
    if _NO_CONNECTION not in details or not any(sign in details for sign in _HUNG_UP):
        return None
    if speaks_tls:
        return "it hung up; TLS: perhaps it wants a certificate of another authority"
    return "it hung up; perhaps it speaks TLS, or is about to stop"
