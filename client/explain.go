package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Explain returns in plain words why there was no answer, without what net/http
// and the operating system put around the reason.
func Explain(err error) string {
	if known := explainSystem(err); known != "" {
		return known
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	switch text := err.Error(); {
	case strings.Contains(text, "HTTP response to HTTPS client"):
		return "it answers HTTP, not HTTPS"
	case strings.Contains(text, "malformed HTTP"):
		return "what answers does not speak HTTP"
	default:
		return strings.TrimPrefix(strings.TrimPrefix(text, "client: "), "net/http: ")
	}
}

// explainSystem knows the errors that have a type or a value.
func explainSystem(err error) string {
	if de, ok := errors.AsType[*net.DNSError](err); ok {
		if de.IsNotFound {
			return "no such host: " + de.Name
		}
		return "the name " + de.Name + " cannot be looked up"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate cannot be trusted"
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "no answer in time"},
		{os.ErrDeadlineExceeded, "no answer in time"},
		{syscall.ECONNREFUSED, "connection refused"},
		{syscall.EHOSTUNREACH, "no route to the host"},
		{syscall.ENETUNREACH, "the network cannot be reached"},
		{syscall.ECONNRESET, "the connection was reset"},
		{syscall.EPIPE, "the connection was closed"},
		{io.EOF, "the connection was closed"},
		{io.ErrUnexpectedEOF, "the connection was closed in the middle of the answer"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return "no answer in time"
	}
	return ""
}
