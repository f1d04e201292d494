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
// decoded into. It looks for what encoding/json refuses without saying where, and
// for what it should refuse and does not.
type locator struct {
	data    []byte
	decoder *json.Decoder
}

func newLocator(data []byte) *locator {
	l := &locator{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	l.decoder.UseNumber() // some numbers of JSON are too large for a float64
	return l
}

// locate returns the first field that t does not have, that is there twice or
// whose name is in another case, or the first text that is not the base64 it
// should be. data must be valid JSON.
func locate(data []byte, t reflect.Type) *misfit {
	return newLocator(data).value(t, "")
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
		if l.halved(token, offset) {
			return &misfit{offset, fieldName(path) + " has half of a surrogate pair"}
		}
		if t != reflect.TypeFor[[]byte]() {
			return nil
		}
		if _, err := base64.StdEncoding.DecodeString(token); err != nil {
			return &misfit{offset, fieldName(path) + " is not base64 with padding"}
		}
	}
	return nil
}

// halved reports whether encoding/json has put U+FFFD into a string for an escape
// that is no character: the string would be taken for another one. begin is as in
// [misfit].
func (l *locator) halved(token string, begin int64) bool {
	const stand = "\ufffd"
	got := strings.Count(token, stand)
	if got == 0 {
		return false
	}
	raw := strings.ToLower(string(l.data[begin-1 : l.decoder.InputOffset()]))
	raw = strings.ReplaceAll(raw, `\\`, "") // so that what is left of \ begins an escape
	return got > strings.Count(raw, stand)+strings.Count(raw, `\ufffd`)
}

func (l *locator) object(t reflect.Type, path string) *misfit {
	seen := map[string]bool{}
	for l.decoder.More() {
		token, offset := l.next()
		name, ok := token.(string)
		if !ok {
			return nil
		}
		if l.halved(name, offset) {
			return &misfit{offset, "a name has half of a surrogate pair"}
		}
		if seen[name] {
			return &misfit{offset, fmt.Sprintf("%q is given twice", name)}
		}
		seen[name] = true
		var of reflect.Type
		if t != nil && t.Kind() == reflect.Struct {
			var hint string
			if of, hint = fieldOf(t, name); of == nil {
				return &misfit{offset, fmt.Sprintf("unknown field %q%s", name, hint)}
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

// fieldOf returns the type of the field with just this name, or nil and a hint
// whether there is one in another case.
func fieldOf(t reflect.Type, name string) (of reflect.Type, hint string) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name:
			return f.Type, ""
		case strings.EqualFold(tag, name):
			hint = fmt.Sprintf(", did you mean %q?", tag)
		}
	}
	return nil, hint
}

// tokenAt returns where the token begins that ends at or after offset.
func tokenAt(data []byte, offset int64) int64 {
	l := newLocator(data)
	for {
		token, begin := l.next()
		if token == nil && begin > int64(len(data)) || l.decoder.InputOffset() >= offset {
			return begin
		}
	}
}
