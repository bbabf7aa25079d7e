package declare

import (
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestEndpointMistakes(t *testing.T) {
	for _, c := range []struct {
		endpoint Endpoint
		onRemove OnRemove
		at       string
		code     reason.Code
	}{
		{Endpoint{}, "", "endpoint", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, Service: "_a._tcp.x"}, "", "endpoint.service", reason.InvalidValue},
		{Endpoint{Host: "db"}, "", "endpoint.port", reason.MissingField},
		{Endpoint{Host: "db", Port: 65536}, "", "endpoint.port", reason.InvalidValue},
		{Endpoint{Host: "d b", Port: 1}, "", "endpoint.host", reason.InvalidValue},
		{Endpoint{Host: "http://db", Port: 1}, "", "endpoint.host", reason.InvalidValue},
		{Endpoint{Service: "postgresql"}, "", "endpoint.service", reason.InvalidValue},
		{Endpoint{Service: "_postgresql._tcp.db", Port: 5432}, "", "endpoint.port", reason.FieldNotAllowed},
		{Endpoint{Host: "db", Port: 1, ServerName: "x"}, "", "endpoint.serverName", reason.FieldNotAllowed},
		{Endpoint{Host: "db", Port: 1, TLS: true, CA: "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"}, "", "endpoint.ca", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, TLS: true, CA: "hello"}, "", "endpoint.ca", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, HTTP: &EndpointHTTP{Path: "health"}}, "", "endpoint.http.path", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, HTTP: &EndpointHTTP{Path: "/a b"}}, "", "endpoint.http.path", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, HTTP: &EndpointHTTP{Status: []int{200, 99}}}, "", "endpoint.http.status[1]", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, HTTP: &EndpointHTTP{Contains: strings.Repeat("x", 1025)}}, "", "endpoint.http.contains", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, Timeout: "0s"}, "", "endpoint.timeout", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, Timeout: "2m"}, "", "endpoint.timeout", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, Every: "soon"}, "", "endpoint.every", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1, Every: "1500ms"}, "", "endpoint.every", reason.InvalidValue},
		{Endpoint{Host: "db", Port: 1}, OnRemoveDelete, "onRemove", reason.FieldNotAllowed},
		{Endpoint{Host: "db", Port: 1}, OnRemoveRestore, "onRemove", reason.FieldNotAllowed},
		{Endpoint{Host: "db", Port: 1}, "", "", 0},
		{Endpoint{Host: "2001:db8::1", Port: 443, TLS: true, ServerName: "db.example.com", HTTP: &EndpointHTTP{Path: "/health?deep=1", Status: []int{204}}, Every: "1h", Timeout: "1m"}, "", "", 0},
		{Endpoint{Service: "_postgresql._tcp.db.example.com."}, "", "", 0},
	} {
		var got []string
		found := false
		for _, f := range Validate(config(Resource{Name: "e", Endpoint: &c.endpoint, OnRemove: c.onRemove})) {
			got = append(got, f.Code.String()+" "+f.Path+": "+f.Message)
			found = found || f.Code == c.code && strings.HasSuffix(f.Path, "."+c.at)
		}
		if c.at == "" && len(got) > 0 || c.at != "" && !found {
			t.Errorf("%+v: %q, want %v at %s", c.endpoint, got, c.code, c.at)
		}
		for _, g := range got {
			if strings.Contains(g, "MAA=") {
				t.Errorf("a key is quoted: %s", g)
			}
		}
	}
}
