package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A misfit is a place in a JSON document that does not fit.
type misfit struct {
	offset int64 // of the end of its first byte
	what   string
}

// A locator goes through a document side by side with the type that it shall be
// decoded into. It looks for what encoding/json refuses without saying where.
type locator struct {
	data    []byte
	decoder *json.Decoder
}

// locate returns the first field that t does not have, or the first text that is
// not the base64 it should be. data must be valid JSON.
func locate(data []byte, t reflect.Type) *misfit {
	l := locator{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	return l.value(t, "")
}

// next returns the next token and where it begins.
func (l *locator) next() (token json.Token, offset int64) {
	at := l.decoder.InputOffset()
	for at < int64(len(l.data)) && strings.IndexByte(" \t\r\n,:", l.data[at]) >= 0 {
		at++
	}
	token, err := l.decoder.Token()
	if err != nil {
		return nil, at + 1 // the end: valid JSON has no other error
	}
	return token, at + 1
}

// value looks at the next value, which shall be a t; nil: whatever it likes.
func (l *locator) value(t reflect.Type, path string) *misfit {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, offset := l.next()
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return l.object(t, path)
		}
		return l.list(t, path)
	case string:
		if t != reflect.TypeFor[[]byte]() {
			return nil
		}
		if _, err := base64.StdEncoding.DecodeString(token); err != nil {
			return &misfit{offset, fieldName(path) + " is not base64 with padding"}
		}
	}
	return nil
}

func (l *locator) object(t reflect.Type, path string) *misfit {
	for l.decoder.More() {
		token, offset := l.next()
		name, ok := token.(string)
		if !ok {
			return nil
		}
		var of reflect.Type
		if t != nil && t.Kind() == reflect.Struct {
			if of = fieldOf(t, name); of == nil {
				return &misfit{offset, fmt.Sprintf("unknown field %q", name)}
			}
		}
		if found := l.value(of, strings.TrimPrefix(path+"."+name, ".")); found != nil {
			return found
		}
	}
	l.next() // the closing brace
	return nil
}

func (l *locator) list(t reflect.Type, path string) *misfit {
	var of reflect.Type
	if t != nil && t.Kind() == reflect.Slice {
		of = t.Elem()
	}
	for i := 0; l.decoder.More(); i++ {
		if found := l.value(of, fmt.Sprintf("%s[%d]", path, i)); found != nil {
			return found
		}
	}
	l.next() // the closing bracket
	return nil
}

// fieldOf returns the type of the field that encoding/json would fill, or nil.
func fieldOf(t reflect.Type, name string) reflect.Type {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.EqualFold(tag, name) {
			return f.Type
		}
	}
	return nil
}

// tokenAt returns where the token begins that ends at or after offset.
func tokenAt(data []byte, offset int64) int64 {
	l := locator{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	for {
		token, begin := l.next()
		if token == nil && begin > int64(len(data)) || l.decoder.InputOffset() >= offset {
			return begin
		}
	}
}
