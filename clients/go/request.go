package pintle

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// StatusError is a response of the API server that reports an error.
type StatusError struct {
	Code int
	Body string
}

func (e *StatusError) Error() string {
	var status struct{ Message string }
	if err := json.Unmarshal([]byte(e.Body), &status); err == nil && status.Message != "" {
		return fmt.Sprintf("%d: %s", e.Code, status.Message)
	}
	return fmt.Sprintf("%d: %s", e.Code, e.Body)
}

// connect makes the HTTP client of the kubeconfig.
func (c *Cluster) connect() error {
	authority, err := base64.StdEncoding.DecodeString(c.field("certificate-authority-data"))
	if err != nil {
		return fmt.Errorf("the kubeconfig's authority: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(authority) {
		return errors.New("the kubeconfig has no authority")
	}
	c.server = c.field("server")
	// a proxy of the environment is not meant for a server of this process
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}, ForceAttemptHTTP2: true}
	c.http = &http.Client{Transport: administrator{transport, "Bearer " + c.field("token")}}
	return nil
}

// administrator adds the administrator's token to requests.
type administrator struct {
	*http.Transport
	authorization string
}

func (a administrator) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", a.authorization)
	return a.Transport.RoundTrip(request)
}

// HTTPClient sends requests below URL as the administrator.
func (c *Cluster) HTTPClient() *http.Client { return c.http }

// field is the first value of a key in the kubeconfig, which the server writes with a key per line.
func (c *Cluster) field(name string) string {
	for _, line := range strings.Split(string(c.kubeconfig), "\n") {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+": "); found {
			return value
		}
	}
	return ""
}

// Request sends a request as the administrator, with a JSON body or none, and returns the body of the response. The path
// may have a query. A response with a code of 400 or more is a *StatusError.
func (c *Cluster) Request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 400 {
		return nil, &StatusError{Code: response.StatusCode, Body: string(answer)}
	}
	return answer, nil
}

func (c *Cluster) getJSON(ctx context.Context, path string, into any) error {
	body, err := c.Request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
