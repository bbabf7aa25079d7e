package body

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestBase64(t *testing.T) {
	const plain, apply = "application/json", "application/apply-patch+yaml"
	for _, c := range []struct {
		name, resource, kind, text string
		fields                     []string // that are refused
	}{
		{"good", "secrets", plain, `{"metadata":{"name":"a"},"data":{"a":"YQ==","b":""}}`, nil},
		{"on two lines", "secrets", plain, `{"data":{"a":"YW\nJj"}}`, nil},
		{"bad", "secrets", plain, `{"metadata":{"name":"a"},"data":{"c":"%%%","a":"YQ==","b":"hunter2!"}}`, []string{"data[b]", "data[c]"}},
		{"bad in YAML", "secrets", apply, "metadata: {name: a}\ndata:\n  a: hunter2!\n", []string{"data[a]"}},
		{"removed by a patch", "secrets", "application/merge-patch+json", `{"data":{"a":null}}`, nil},
		{"replaced by a patch", "secrets", "application/strategic-merge-patch+json", `{"data":{"$patch":"replace","a":"YQ=="}}`, nil},
		{"JSON patch", "secrets", "application/json-patch+json", `[{"op":"remove","path":"/data/a"}]`, nil},
		{"no JSON", "secrets", plain, `{"data":`, nil},
		{"not a text", "secrets", plain, `{"data":{"a":1}}`, nil},
		{"plain text", "configmaps", plain, `{"data":{"a":"hunter2!"}}`, nil},
		{"bad in a ConfigMap", "configmaps", plain, `{"binaryData":{"a":"hunter2!"}}`, []string{"binaryData[a]"}},
		{"of another kind", "leases", plain, `{"data":{"a":"hunter2!"}}`, nil},
	} {
		r := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader(c.text))
		r.Header.Set("Content-Type", c.kind)
		r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Resource: c.resource, Name: "a"}))
		var got []byte
		var err error
		Base64(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, err = io.ReadAll(r.Body) })).ServeHTTP(httptest.NewRecorder(), r)
		if c.fields == nil {
			if err != nil || string(got) != c.text {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
			continue
		}
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var fields []string
		for _, cause := range status.Status().Details.Causes {
			fields = append(fields, cause.Field)
		}
		if strings.Join(fields, " ") != strings.Join(c.fields, " ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %v", c.name, err, c.fields)
		}
	}
}
