package admin

import (
	"encoding/json"
	"net/http"

	"github.com/raftyard/raftyard/client"
)

// Starting returns what answers while a node opens: it lives, and is not ready
// for anything else.
func Starting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" && isRead(r) {
			writeDocument(w, r, http.StatusOK, "application/json", liveness{Live: true})
			return
		}
		p := newProblem(client.CodeNotReady, "the node is starting")
		w.Header().Set("Retry-After", "1")
		writeDocument(w, r, p.Status, client.ProblemType, p)
	})
}

// writeDocument answers with a document that can always be encoded. An error of
// the write means that the client is gone.
func writeDocument(w http.ResponseWriter, r *http.Request, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	ignoreUnsupported(json.NewEncoder(w).Encode(v))
}
