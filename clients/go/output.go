package pintle

import (
	"io"
	"strings"
	"sync"
)

// keptOutput is how much of the server's output is kept for failures.
const keptOutput = 256 << 10

// output keeps the end of what the server writes, and finds the line with the kubeconfig.
type output struct {
	also       io.Writer
	kubeconfig chan string

	mutex   sync.Mutex
	text    []byte
	isFound bool
}

func newOutput(also io.Writer) *output {
	return &output{also: also, kubeconfig: make(chan string, 1)}
}

func (o *output) Write(bytes []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.text = append(o.text, bytes...)
	if !o.isFound {
		o.find()
	}
	if len(o.text) > 2*keptOutput {
		o.text = append([]byte(nil), o.text[len(o.text)-keptOutput:]...)
	}
	if o.also != nil {
		// the server goes on without it
		_, _ = o.also.Write(bytes)
	}
	return len(bytes), nil
}

func (o *output) find() {
	const export = "export KUBECONFIG="
	_, after, found := strings.Cut(string(o.text), export)
	line, _, ended := strings.Cut(after, "\n")
	if found && ended {
		o.kubeconfig <- unquote(line)
		o.isFound = true
	}
}

// unquote reads a word of a shell, as the server writes it.
func unquote(word string) string {
	if !strings.HasPrefix(word, "'") {
		return word
	}
	word = strings.TrimSuffix(strings.TrimPrefix(word, "'"), "'")
	return strings.ReplaceAll(word, `'\''`, "'")
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return string(o.text)
}
