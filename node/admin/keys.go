package admin

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// key returns the group and the key of the path.
func (c *call) key() (raftyard.GroupID, []byte, error) {
	id, err := c.keyGroup()
	if err != nil {
		return 0, nil, err
	}
	key, err := url.PathUnescape(c.rawKey)
	switch {
	case err != nil:
		return 0, nil, newProblem(client.CodeInvalid, "the key cannot be decoded: %v", err)
	case key == "":
		return 0, nil, newProblem(client.CodeInvalid,
			"the key is empty, want 1 to %d bytes", kv.MaxKeyBytes)
	case len(key) > kv.MaxKeyBytes:
		return 0, nil, newProblem(client.CodeTooLarge,
			"the key has %d bytes, the limit is %d", len(key), kv.MaxKeyBytes)
	}
	return id, []byte(key), nil
}

// consistency returns how fresh the read must be, and labels the answer.
func (c *call) consistency() (node.Consistency, error) {
	text, ok, err := c.param("consistency")
	if err != nil {
		return 0, err
	}
	if !ok {
		text = node.Linearizable.String()
	}
	for _, how := range []node.Consistency{node.Linearizable, node.Stale} {
		if how.String() == text {
			c.w.Header().Set(client.HeaderConsistency, text)
			return how, nil
		}
	}
	return 0, newProblem(client.CodeInvalid,
		"consistency is %q, want %s or %s", text, client.Linearizable, client.Stale)
}

func (h *Handler) getKey(c *call) error {
	id, key, err := c.key()
	if err != nil {
		return err
	}
	how, err := c.consistency()
	if err != nil {
		return err
	}
	value, err := h.cfg.KV.Get(c.r.Context(), id, key, how)
	if errors.Is(err, kv.ErrNotFound) {
		return newProblem(client.CodeKeyNotFound, "group %d has no key %s", id, shown(key))
	}
	if err != nil {
		return err
	}
	if err = c.reserve(int64(len(value.Data))); err != nil {
		return err
	}
	header := c.w.Header()
	tag := etag(value.Revision)
	header.Set("ETag", tag)
	header.Set(client.HeaderCreateRevision, strconv.FormatUint(value.CreateRevision, 10))
	if c.unchanged(tag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", "application/octet-stream")
	c.write(http.StatusOK, value.Data)
	return nil
}

// shown returns a key, or the beginning of a long one, for a message.
func shown(key []byte) string {
	const most = 200
	if len(key) <= most {
		return strconv.Quote(string(key))
	}
	return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
}

// unchanged reports whether the client has the value with the tag already.
func (c *call) unchanged(tag string) bool {
	for _, header := range c.r.Header.Values("If-None-Match") {
		for one := range strings.SplitSeq(header, ",") {
			one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
			if one == tag || one == "*" || one == strings.Trim(tag, `"`) {
				return true
			}
		}
	}
	return false
}

func (h *Handler) putKey(c *call) error {
	id, key, err := c.key()
	if err != nil {
		return err
	}
	cond, err := c.condition()
	if err != nil {
		return err
	}
	value, err := c.body("the value", kv.MaxValueBytes)
	if err != nil {
		return err
	}
	revision, created, err := h.cfg.KV.Put(c.r.Context(), id, key, value, cond)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	c.w.Header().Set("ETag", etag(revision))
	return c.send(status, client.PutResult{Revision: revision, Created: created})
}

func (h *Handler) deleteKey(c *call) error {
	id, key, err := c.key()
	if err != nil {
		return err
	}
	cond, err := c.condition()
	if err != nil {
		return err
	}
	deleted, revision, err := h.cfg.KV.Delete(c.r.Context(), id, key, cond)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, client.DeleteResult{Revision: revision, Deleted: deleted})
}

// etag returns a revision as an entity tag.
func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// condition returns what If-Match and If-None-Match demand of a change. One that
// is there and empty, as from a client whose revision is not set, is no condition
// that could be met: without any the change would overwrite what it must not.
func (c *call) condition() (kv.Cond, error) {
	match, hasMatch, err := c.header("If-Match")
	if err != nil {
		return kv.Cond{}, err
	}
	noneMatch, hasNoneMatch, err := c.header("If-None-Match")
	if err != nil {
		return kv.Cond{}, err
	}
	switch {
	case hasMatch && hasNoneMatch:
		return kv.Cond{}, newProblem(client.CodeInvalid,
			"If-Match and If-None-Match do not go together")
	case hasNoneMatch && noneMatch == "*":
		return kv.Cond{Absent: true}, nil
	case hasNoneMatch:
		return kv.Cond{}, newProblem(client.CodeInvalid, "If-None-Match is %q, want *", noneMatch)
	case !hasMatch:
		return kv.Cond{}, nil
	case match == "*":
		return kv.Cond{Present: true}, nil
	}
	text, ok := strings.CutPrefix(match, `"`)
	if ok {
		text, ok = strings.CutSuffix(text, `"`)
	} else {
		ok = true // a bare number is easier to type in a shell
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || revision == 0 {
		return kv.Cond{}, newProblem(client.CodeInvalid,
			`If-Match is %q, want the ETag of the key, such as "7", or *`, match)
	}
	return kv.Cond{Revision: revision}, nil
}

// header returns a header that may be given once.
func (c *call) header(name string) (text string, ok bool, err error) {
	values := c.r.Header.Values(name)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return strings.TrimSpace(values[0]), true, nil
	default:
		return "", false, newProblem(client.CodeInvalid, "%s is given %d times", name, len(values))
	}
}

func (h *Handler) listKeys(c *call) error {
	id, err := c.keyGroup()
	if err != nil {
		return err
	}
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if err = c.reserve(mostAnswer); err != nil {
		return err
	}
	result, err := h.cfg.KV.List(c.r.Context(), id, req)
	if err != nil {
		return err
	}
	page := client.Items{
		Items: make([]client.Item, len(result.Items)), Revision: result.Revision,
	}
	for i := range result.Items {
		it := &result.Items[i]
		page.Items[i] = client.Item{
			Key: it.Key, Revision: it.Revision, CreateRevision: it.CreateRevision,
		}
		if !req.KeysOnly {
			page.Items[i].Value = append([]byte{}, it.Data...)
		}
	}
	if len(result.Next) > 0 {
		page.NextCursor = base64.RawURLEncoding.EncodeToString(result.Next)
	}
	return c.send(http.StatusOK, page)
}

func (c *call) listRequest() (kv.ListRequest, error) {
	var req kv.ListRequest
	prefix, _, err := c.param("prefix")
	if err != nil {
		return req, err
	}
	req.Prefix = []byte(prefix)
	cursor, _, err := c.param("cursor")
	if err != nil {
		return req, err
	}
	req.Start, err = base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(req.Start) > kv.MaxKeyBytes+1 {
		return req, newProblem(client.CodeInvalid,
			"cursor is %q, want the next_cursor of the page before", cursor)
	}
	limit, err := c.number("limit", defaultPage, 1, maxPage)
	if err != nil {
		return req, err
	}
	req.Limit = int(limit)
	if req.KeysOnly, err = c.flag("keys_only"); err != nil {
		return req, err
	}
	req.Consistency, err = c.consistency()
	return req, err
}
