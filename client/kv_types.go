package client

import (
	"encoding/json"
	"unicode/utf8"
)

// PutResult answers a put of one key.
type PutResult struct {
	Revision uint64 `json:"revision"` // of the key now
	Created  bool   `json:"created"`  // the key was not there before
}

// DeleteResult answers a delete of one key.
type DeleteResult struct {
	Revision uint64 `json:"revision"` // of the group after the delete
	Deleted  bool   `json:"deleted"`  // the key was there before
}

// An Item is one key with its value. In JSON, a key that is UTF-8 is in key and
// any other in key_base64, and the same goes for the value.
type Item struct {
	Key   []byte
	Value []byte // nil when only keys were asked for, or when there is no such key
	// Revision is of the command that wrote the key last, and CreateRevision of
	// the one that made it.
	Revision       uint64
	CreateRevision uint64
}

type itemJSON struct {
	Key            *string `json:"key,omitempty"`
	KeyBase64      []byte  `json:"key_base64,omitempty"`
	Value          *string `json:"value,omitempty"`
	ValueBase64    []byte  `json:"value_base64,omitempty"`
	Revision       uint64  `json:"revision"`
	CreateRevision uint64  `json:"create_revision"`
}

// MarshalJSON writes bytes that are not UTF-8 in base64.
func (i Item) MarshalJSON() ([]byte, error) {
	j := itemJSON{Revision: i.Revision, CreateRevision: i.CreateRevision}
	j.Key, j.KeyBase64 = textOrBytes(i.Key)
	if i.Value != nil {
		j.Value, j.ValueBase64 = textOrBytes(i.Value)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads both forms.
func (i *Item) UnmarshalJSON(data []byte) error {
	var j itemJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*i = Item{Revision: j.Revision, CreateRevision: j.CreateRevision}
	i.Key, i.Value = either(j.Key, j.KeyBase64), either(j.Value, j.ValueBase64)
	return nil
}

// textOrBytes returns b as a text if it is one.
func textOrBytes(b []byte) (text *string, bytes []byte) {
	if utf8.Valid(b) {
		return new(string(b)), nil
	}
	return nil, b
}

// either returns what was given, or nil.
func either(text *string, bytes []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return bytes
}

// Items is one page of a list of keys, in the order of their bytes.
type Items struct {
	Items      []Item `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"` // empty: that was all
	Revision   uint64 `json:"revision"`              // of the group when it was read
}

// A Txn is several operations on one group that are done together or not at
// all: Then when every compare holds, Else otherwise.
type Txn struct {
	Compare []Compare `json:"compare,omitempty"`
	Then    []Op      `json:"then,omitempty"`
	Else    []Op      `json:"else,omitempty"`
}

// A Compare compares something of a key with an operand. Exactly one of
// Revision, CreateRevision, Exists, Value and ValueBase64 is given.
type Compare struct {
	Key       *string `json:"key,omitempty"`
	KeyBase64 []byte  `json:"key_base64,omitempty"`
	// Is says how the key must stand to the operand: equal (the default),
	// not_equal, less or greater. It does not go with Exists.
	Is string `json:"is,omitempty"`

	Revision       *uint64 `json:"revision,omitempty"` // zero: there is no such key
	CreateRevision *uint64 `json:"create_revision,omitempty"`
	Exists         *bool   `json:"exists,omitempty"`
	// No comparison with the value of a key that is not there holds.
	Value       *string `json:"value,omitempty"`
	ValueBase64 *[]byte `json:"value_base64,omitempty"`
}

// An Op is one operation. Op is put, delete or get; only put has a value.
type Op struct {
	Op          string  `json:"op"`
	Key         *string `json:"key,omitempty"`
	KeyBase64   []byte  `json:"key_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *[]byte `json:"value_base64,omitempty"`
}

// The operations of a transaction.
const (
	OpPut    = "put"
	OpDelete = "delete"
	OpGet    = "get"
)

// TxnResult answers a [Txn].
type TxnResult struct {
	Succeeded bool       `json:"succeeded"` // every compare held, Then was done
	Revision  uint64     `json:"revision"`  // of the group afterwards
	Results   []OpResult `json:"results"`   // one for each operation that was done
}

// OpResult answers one operation.
type OpResult struct {
	Op    string `json:"op"`
	Found bool   `json:"found"` // put, delete: the key was there before
	// Item is what a get found; nil: no such key.
	Item *Item `json:"item,omitempty"`
}
