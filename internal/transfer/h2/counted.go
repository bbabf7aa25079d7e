package h2

import "net/http"

// counted counts the bytes of an answer.
type counted struct {
	http.ResponseWriter
	add func(bytes float64)
}

// Counted has the bytes of an answer counted, as they are before encryption. What http.ResponseController and Continue do is done to w.
func Counted(w http.ResponseWriter, add func(bytes float64)) http.ResponseWriter {
	return counted{w, add}
}

// Write writes.
func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.add(float64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
