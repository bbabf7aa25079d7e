package body

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// base64BytesMax is the largest body that is looked at: what an object may have in base64, twice, since it may be written in a longer
// form. Whatever is larger is refused by the library.
const base64BytesMax = 3 << 20

// Base64 says which value of a Secret or ConfigMap is not base64, where one must be; the library's decoders say only that there is
// one. It never tells the value.
func Base64(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, known := request.RequestInfoFrom(r.Context()); known && r.Body != nil && !isBinary(r.Header.Get("Content-Type")) {
			if in, has := encodedField(info, r.Method); has {
				r.Body = &readBody{Closer: r.Body, Reader: checked(r.Body, info, in)}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// readBody reads what has been read before from something else.
type readBody struct {
	io.Closer
	io.Reader
}

// encodedField is the field of the objects of a write whose values are base64.
func encodedField(info *request.RequestInfo, method string) (string, bool) {
	writes := method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
	if !writes || info.APIGroup != "" || info.Subresource != "" {
		return "", false
	}
	in := map[string]string{"secrets": "data", "configmaps": "binaryData"}[info.Resource]
	return in, in != ""
}

// checked reads a body, and returns it again, or the answer that refuses it as what reading it gives.
func checked(body io.Reader, info *request.RequestInfo, in string) io.Reader {
	text, err := io.ReadAll(io.LimitReader(body, base64BytesMax+1))
	if err != nil {
		return failing{err}
	}
	again := io.MultiReader(bytes.NewReader(text), body)
	var o struct {
		Metadata   struct{ Name string }      `json:"metadata"`
		Data       map[string]json.RawMessage `json:"data"`
		BinaryData map[string]json.RawMessage `json:"binaryData"`
	}
	// What is no object, such as a JSON patch, or too large, is the decoder's.
	if len(text) > base64BytesMax || yaml.Unmarshal(text, &o) != nil {
		return again
	}
	values := o.Data
	if in == "binaryData" {
		values = o.BinaryData
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		var value string
		if strings.HasPrefix(key, "$") || json.Unmarshal(values[key], &value) != nil {
			continue // what a patch is to do, or not a text: that the decoder says
		}
		if _, err := base64.StdEncoding.DecodeString(value); err != nil {
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: field.NewPath(in).Key(key).String(), BadValue: field.OmitValueType{}, Detail: badBase64(in, err)})
		}
	}
	if len(errs) == 0 {
		return again
	}
	kind := map[string]string{"data": "Secret", "binaryData": "ConfigMap"}[in]
	name := o.Metadata.Name
	if name == "" {
		name = info.Name
	}
	return failing{apierrors.NewInvalid(core.SchemeGroupVersion.WithKind(kind).GroupKind(), name, errs)}
}

func badBase64(in string, err error) string {
	instead := "stringData takes plain text"
	if in == "binaryData" {
		instead = "data takes plain text"
	}
	return fmt.Sprintf("not base64: %v; %s", err, instead)
}

// failing is a body that cannot be read.
type failing struct{ err error }

// Read gives the error.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
