package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestCauseOfContextIsNoAnswer: the first of two puts is refused, and that is the
// cause that ends the context of the second, which its node has in hand. What was
// said of the first says nothing of the second.
func TestCauseOfContextIsNoAnswer(t *testing.T) {
	taken, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/refused") {
			<-taken
			w.Header().Set("Content-Type", ProblemType)
			w.WriteHeader(http.StatusPreconditionFailed)
			_ = json.NewEncoder(w).Encode(Problem{
				Status: 412, Code: CodePrecondition, Outcome: OutcomeNotApplied,
			})
			return
		}
		close(taken) // it will be applied
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	c := newClient(t, Config{Addrs: []string{server.URL}})

	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := c.Put(ctx, 1, []byte("refused"), nil, Cond{Absent: true})
		cancel(err) // as errgroup.WithContext does
		first <- err
	}()
	_, err := c.Put(ctx, 1, []byte("taken"), nil, Cond{})
	if NotApplied(err) || IsCode(err, CodePrecondition) || !errors.Is(err, context.Canceled) {
		t.Errorf("a put that its node has = %v, want an unknown outcome", err)
	}
	if err = <-first; !NotApplied(err) || !IsCode(err, CodePrecondition) {
		t.Errorf("the refused put = %v, want %s", err, CodePrecondition)
	}
	_, err = c.Status(ctx)
	if !NotApplied(err) || IsCode(err, CodePrecondition) {
		t.Errorf("a read after the end of the context = %v, want nobody reached", err)
	}
}

// TestUnknownWins: an error that holds both says that the outcome is unknown.
func TestUnknownWins(t *testing.T) {
	p := &Problem{Code: CodeNoLeader, Outcome: OutcomeNotApplied}
	for _, err := range []error{&UnknownError{Err: p}, errors.Join(p, &UnknownError{Err: io.EOF})} {
		if NotApplied(err) || IsCode(err, CodeNoLeader) {
			t.Errorf("%v: not applied %t, no leader %t, want neither",
				err, NotApplied(err), IsCode(err, CodeNoLeader))
		}
	}
}

// TestAnswerThatCannotBeRead: a change whose answer is good and unreadable may be
// done. For a read it makes no difference.
func TestAnswerThatCannotBeRead(t *testing.T) {
	for name, body := range map[string]string{
		"another's page": "<html>done</html>", "nothing": "", "half": `{"revision":`,
		"too much": strings.Repeat(" ", maxAnswerBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, body)
				}))
			t.Cleanup(server.Close)
			c := newClient(t, Config{Addrs: []string{server.URL}})
			_, err := c.Put(t.Context(), 1, []byte("k"), nil, Cond{})
			if err == nil || NotApplied(err) {
				t.Errorf("a put = %v, want an unknown outcome", err)
			}
			if _, err = c.Status(t.Context()); !NotApplied(err) {
				t.Errorf("a read = %v, want an error without effect", err)
			}
		})
	}
}

// TestAnswerIsWhole: a value comes whole, whether its length was said before or not.
func TestAnswerIsWhole(t *testing.T) {
	for _, size := range []int{0, 1, 100_000} {
		want := strings.Repeat("v", size)
		for _, said := range []bool{true, false} {
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					if said {
						w.Header().Set("Content-Length", strconv.Itoa(size))
					} else {
						w.WriteHeader(http.StatusOK)
						_ = http.NewResponseController(w).Flush()
					}
					_, _ = io.WriteString(w, want)
				}))
			t.Cleanup(server.Close)
			c := newClient(t, Config{Addrs: []string{server.URL}})
			item, err := c.Get(t.Context(), 1, []byte("k"), Stale)
			if err != nil || string(item.Value) != want {
				t.Errorf("a value of %d bytes, length said %t: %v", size, said, err)
			}
		}
	}
}

// mute is a RoundTripper that has the request served, loses the answer, and does
// not know httptrace.
type mute struct{ served atomic.Int64 }

func (m *mute) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	m.served.Add(1)
	return nil, errors.Join(err, io.ErrUnexpectedEOF)
}

// TestTransportWithoutTrace: when nobody tells whether a change was sent, it is
// taken to be, and not sent to a second node.
func TestTransportWithoutTrace(t *testing.T) {
	transport := &mute{}
	c := newClient(t, Config{
		Addrs: []string{"a:1", "b:1", "c:1"}, HTTP: &http.Client{Transport: transport},
	})
	_, err := c.Txn(t.Context(), 1, Txn{})
	if n := transport.served.Load(); n != 1 || NotApplied(err) {
		t.Errorf("sent %d times, then %v, want an unknown outcome after one", n, err)
	}
	transport.served.Store(0)
	_, err = c.Status(t.Context())
	if n := transport.served.Load(); n != 3 || !NotApplied(err) {
		t.Errorf("a read was sent %d times, then %v, want every address", n, err)
	}
}
