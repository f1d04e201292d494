package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/raftyard/raftyard/client"
)

// maxJSONBytes bounds the documents that administer groups.
const maxJSONBytes = 1 << 20

// json reads a JSON document into v, strictly.
func (c *call) json(v any, limit int64) error {
	if err := checkMediaType(c.r.Header.Get("Content-Type")); err != nil {
		return err
	}
	data, err := c.body("the body", limit)
	if err != nil {
		return err
	}
	switch string(bytes.TrimSpace(data)) {
	case "":
		return newProblem(client.CodeMalformed, "the body is empty, want a JSON object")
	case "null": // which encoding/json takes for an object without fields
		return newProblem(client.CodeMalformed, "the body is null, want a JSON object")
	}
	if !utf8.Valid(data) {
		// encoding/json would put U+FFFD for what is not UTF-8: another key.
		return newProblem(client.CodeMalformed,
			"the body is not UTF-8; give other bytes in base64, as key_base64 and value_base64")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return malformed(data, reflect.TypeOf(v), decoder.InputOffset(), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return malformed(data, nil, decoder.InputOffset(), errors.New("more after the JSON object"))
	}
	// encoding/json takes members in any case and, of two that are the same, the last:
	// who reads the first would have read another wish.
	if found := locate(data, reflect.TypeOf(v)); found != nil {
		return malformedAt(data, found.offset, found.what)
	}
	return nil
}

// checkMediaType refuses a body that says it is something else than JSON. What
// curl sends unasked is taken as saying nothing: a browser could send it from
// another site, but such requests were refused before.
func checkMediaType(header string) error {
	if header == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(header)
	switch {
	case err != nil:
	case kind == "application/json", strings.HasSuffix(kind, "+json"),
		kind == "application/x-www-form-urlencoded":
		return nil
	}
	return newProblem(client.CodeMediaType, "the body is %q, want application/json", header)
}

// malformed says where in the body JSON ends to be what is wanted.
func malformed(data []byte, want reflect.Type, offset int64, err error) error {
	what := strings.TrimPrefix(err.Error(), "json: ")
	se, isSyntax := errors.AsType[*json.SyntaxError](err)
	te, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		offset, what = int64(len(data)), "the JSON ends too early"
	case isSyntax:
		offset = se.Offset
	case isType:
		offset = tokenAt(data, te.Offset)
		what = fmt.Sprintf("%s is %s, want %s",
			fieldName(te.Field), article(te.Value), kindName(te))
	case want != nil: // what is left has no place of its own
		if found := locate(data, want); found != nil {
			offset, what = found.offset, found.what
		}
	}
	return malformedAt(data, offset, what)
}

// malformedAt says what is wrong at a place of the body.
func malformedAt(data []byte, offset int64, what string) error {
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := max(len(before)-bytes.LastIndexByte(before, '\n')-1, 1)
	return newProblem(client.CodeMalformed, "line %d, column %d: %s", line, column, what)
}

func fieldName(field string) string {
	if field == "" {
		return "the body"
	}
	return field
}

// article returns what encoding/json calls a kind of value, with its article.
func article(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	default:
		return "a " + kind
	}
}

func kindName(te *json.UnmarshalTypeError) string {
	switch kind := te.Type.Kind().String(); kind {
	case "struct", "map":
		return "an object"
	case "slice", "array":
		return "a list"
	case "uint64", "int", "int64":
		return "a whole number that is not negative"
	case "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}
