package admin

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
)

// maxTxnJSON bounds the JSON of a transaction. In the worst case a byte takes
// six, as \u00XX; what is too large for a command is found out afterwards.
const maxTxnJSON = 6*kv.MaxCommandBytes + 64<<10

func (h *Handler) txn(c *call) error {
	id, err := c.keyGroup()
	if err != nil {
		return err
	}
	var doc client.Txn
	err = c.json(&doc, maxTxnJSON)
	if err != nil {
		return err
	}
	txn, err := readTxn(doc)
	if err != nil {
		return err
	}
	if gets(txn.Then) || gets(txn.Else) {
		if err = c.reserve(mostAnswer); err != nil {
			return err
		}
	}
	result, err := h.cfg.KV.Txn(c.r.Context(), id, txn)
	if err != nil {
		return err
	}
	answer := client.TxnResult{
		Succeeded: result.Succeeded,
		Revision:  result.Revision,
		Results:   make([]client.OpResult, len(result.Results)),
	}
	ops := txn.Else
	if result.Succeeded {
		ops = txn.Then
	}
	if len(ops) != len(result.Results) {
		return fmt.Errorf("%d results for %d operations", len(result.Results), len(ops))
	}
	for i := range result.Results {
		answer.Results[i] = opResult(ops[i].Key, &result.Results[i])
	}
	return c.send(http.StatusOK, answer)
}

// gets reports whether operations return values.
func gets(ops []kv.Op) bool {
	return slices.ContainsFunc(ops, func(op kv.Op) bool { return op.Kind == kv.OpGet })
}

func opResult(key []byte, r *kv.OpResult) client.OpResult {
	out := client.OpResult{Op: opName(r.Kind), Found: r.Found}
	if r.Kind == kv.OpGet && r.Found {
		out.Item = &client.Item{
			Key: key, Value: append([]byte{}, r.Value.Data...),
			Revision: r.Value.Revision, CreateRevision: r.Value.CreateRevision,
		}
	}
	return out
}

func opName(kind kv.OpKind) string {
	switch kind {
	case kv.OpPut:
		return client.OpPut
	case kv.OpDelete:
		return client.OpDelete
	case kv.OpGet:
		return client.OpGet
	default:
		return fmt.Sprintf("op %d", kind)
	}
}

func readTxn(doc client.Txn) (kv.Txn, error) {
	var t kv.Txn
	longest := max(len(doc.Compare), len(doc.Then), len(doc.Else))
	if longest > kv.MaxTxnOps {
		return t, newProblem(client.CodeTooLarge,
			"a list of the transaction has %d elements, the limit is %d", longest, kv.MaxTxnOps)
	}
	for i := range doc.Compare {
		compare, err := readCompare(&doc.Compare[i], fmt.Sprintf("compare[%d]", i))
		if err != nil {
			return t, err
		}
		t.Compares = append(t.Compares, compare)
	}
	var err error
	if t.Then, err = readOps(doc.Then, "then"); err != nil {
		return t, err
	}
	t.Else, err = readOps(doc.Else, "else")
	return t, err
}

// bytesOf returns what is given as a text or in base64. at names the place, for
// the message when it is not exactly one of both.
func bytesOf(text *string, encoded *[]byte, at, name string) ([]byte, error) {
	switch {
	case text != nil && encoded == nil:
		return []byte(*text), nil
	case text == nil && encoded != nil:
		return *encoded, nil
	default:
		return nil, newProblem(client.CodeInvalid,
			"%s: want either %s or %s_base64", at, name, name)
	}
}

func keyOf(text *string, encoded []byte, at string) ([]byte, error) {
	var bytes *[]byte
	if encoded != nil {
		bytes = &encoded
	}
	key, err := bytesOf(text, bytes, at, "key")
	switch {
	case err != nil:
		return nil, err
	case len(key) == 0:
		return nil, newProblem(client.CodeInvalid,
			"%s: the key is empty, want 1 to %d bytes", at, kv.MaxKeyBytes)
	default:
		return key, nil
	}
}

func readCompare(doc *client.Compare, at string) (kv.Compare, error) {
	var c kv.Compare
	var err error
	if c.Key, err = keyOf(doc.Key, doc.KeyBase64, at); err != nil {
		return c, err
	}
	if c.Is, err = relation(doc.Is, at); err != nil {
		return c, err
	}
	operands := 0
	if doc.Revision != nil {
		operands++
		c.Target, c.Revision = kv.TargetRevision, *doc.Revision
	}
	if doc.CreateRevision != nil {
		operands++
		c.Target, c.Revision = kv.TargetCreateRevision, *doc.CreateRevision
	}
	if doc.Value != nil || doc.ValueBase64 != nil {
		operands++
		c.Target = kv.TargetValue
		if c.Value, err = bytesOf(doc.Value, doc.ValueBase64, at, "value"); err != nil {
			return c, err
		}
	}
	if doc.Exists != nil {
		operands++
		if doc.Is != "" {
			return c, newProblem(client.CodeInvalid, "%s: is does not go with exists", at)
		}
		c.Target, c.Is = kv.TargetRevision, kv.Equal
		if *doc.Exists {
			c.Is = kv.Greater
		}
	}
	if operands != 1 {
		return c, newProblem(client.CodeInvalid,
			"%s: want exactly one of revision, create_revision, exists, value and value_base64", at)
	}
	return c, nil
}

func relation(word, at string) (kv.Relation, error) {
	switch word {
	case "", "equal":
		return kv.Equal, nil
	case "not_equal":
		return kv.NotEqual, nil
	case "less":
		return kv.Less, nil
	case "greater":
		return kv.Greater, nil
	default:
		return 0, newProblem(client.CodeInvalid,
			"%s: is is %q, want equal, not_equal, less or greater", at, word)
	}
}

func readOps(docs []client.Op, list string) ([]kv.Op, error) {
	ops := make([]kv.Op, 0, len(docs))
	for i := range docs {
		op, err := readOp(&docs[i], fmt.Sprintf("%s[%d]", list, i))
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func readOp(doc *client.Op, at string) (kv.Op, error) {
	var op kv.Op
	var err error
	if op.Key, err = keyOf(doc.Key, doc.KeyBase64, at); err != nil {
		return op, err
	}
	hasValue := doc.Value != nil || doc.ValueBase64 != nil
	switch doc.Op {
	case client.OpPut:
		op.Kind = kv.OpPut
		op.Value, err = bytesOf(doc.Value, doc.ValueBase64, at, "value")
		return op, err
	case client.OpDelete:
		op.Kind = kv.OpDelete
	case client.OpGet:
		op.Kind = kv.OpGet
	default:
		return op, newProblem(client.CodeInvalid,
			"%s: op is %q, want put, delete or get", at, doc.Op)
	}
	if hasValue {
		return op, newProblem(client.CodeInvalid, "%s: only put has a value", at)
	}
	return op, nil
}
