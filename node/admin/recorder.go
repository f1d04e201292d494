package admin

import "net/http"

// A recorder is a ResponseWriter that remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status  int // zero: nothing was sent yet
	matched *route
}

// WriteHeader sends the header.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body, and the header before it.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap gives [http.ResponseController] what it controls.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// code returns the status that the client sees.
func (w *recorder) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
