package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
)

// connectLimit is how long a server may take to answer a new connection.
const connectLimit = 5 * time.Second

// Dial says where a mesh is and who connects to it.
type Dial struct {
	// URL of the NATS server, or several with commas between. Required.
	URL string

	// Identity to connect as: it names the subjects that may be used. Required.
	Identity string

	// SeedFile is the path of the identity's nkey seed. Default: none, for
	// servers without authentication.
	SeedFile string

	// Prefix of the mesh's subjects. Default: "wb".
	Prefix string

	// NATS holds further options, which win over those of [Options]. Default: none.
	NATS []nats.Option
}

// Connect connects to a mesh. [Conn.Close] closes the NATS connection too. The
// error is UNAVAILABLE where no server answers, DENIED where the server or the
// seed file refuses the identity, VALIDATION_INPUT for a wrong field.
func Connect(ctx context.Context, d Dial) (*Conn, error) {
	nc, err := ConnectNATS(ctx, d)
	if err != nil {
		return nil, err
	}
	c, err := New(nc, d.Identity, WithPrefix(d.prefix()))
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.closeNATS = nc.Close
	if err := c.Flush(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ConnectNATS makes the NATS connection alone, for [New]; errors as of [Connect].
func ConnectNATS(ctx context.Context, d Dial) (*nats.Conn, error) {
	opts, err := d.options()
	if err != nil {
		return nil, err
	}
	nc, err := connect(ctx, d.URL, opts)
	if err != nil {
		return nil, d.refused(err)
	}
	return nc, nil
}

func (d Dial) prefix() string {
	if d.Prefix == "" {
		return DefaultPrefix
	}
	return d.Prefix
}

func (d Dial) options() ([]nats.Option, error) {
	if strings.TrimSpace(d.URL) == "" {
		return nil, frames.NewError(frames.CodeValidationInput, "Dial.URL: is empty, want one such as nats://127.0.0.1:4222")
	}
	if !frames.ValidName(d.Identity) {
		return nil, frames.NewError(frames.CodeValidationInput, "Dial.Identity %q: want letters, digits, _ and -", d.Identity)
	}
	opts := append(Options(d.Identity), nats.Timeout(connectLimit))
	if d.SeedFile == "" {
		return slices.Concat(opts, d.NATS), nil
	}
	key, err := seedOption(d.SeedFile)
	if err != nil {
		return nil, frames.NewError(frames.CodeDenied,
			"cannot use the nkey seed file %s: give the path of the seed that belongs to identity %s "+
				"(weavebus up writes one for each into its state folder): %w",
			d.SeedFile, d.Identity, err)
	}
	return slices.Concat(opts, []nats.Option{key}, d.NATS), nil
}

// maxSeedFile is far more than a seed and its comments take.
const maxSeedFile = 64 << 10

// seedOption is nats.NkeyOptionFromSeed, which reads its file more than once and to
// the end: neither suits a pipe, a device or something large.
func seedOption(path string) (nats.Option, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxSeedFile:
		return nil, fmt.Errorf("it is over the limit of %d bytes", maxSeedFile)
	}
	return nats.NkeyOptionFromSeed(path)
}

// connect is nats.Connect that gives up when ctx ends.
func connect(ctx context.Context, url string, opts []nats.Option) (*nats.Conn, error) {
	type answer struct {
		nc  *nats.Conn
		err error
	}
	got := make(chan answer, 1)
	go func() {
		nc, err := nats.Connect(url, opts...)
		got <- answer{nc, err}
	}()
	select {
	case a := <-got:
		return a.nc, a.err
	case <-ctx.Done():
		go func() {
			if a := <-got; a.nc != nil {
				a.nc.Close()
			}
		}()
		return nil, frames.AsError(context.Cause(ctx))
	}
}

// denials are what NATS says where it does not let somebody in.
var denials = []error{
	nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported,
}

func (d Dial) refused(err error) error {
	if e, ok := errors.AsType[*frames.Error](err); ok {
		return e
	}
	if bad, ok := errors.AsType[*url.Error](err); ok { // its own text holds the password
		return frames.NewError(frames.CodeValidationInput, "Dial.URL: cannot be read: %w", bad.Err)
	}
	at := shownURL(d.URL)
	for _, denial := range denials {
		if errors.Is(err, denial) {
			return frames.NewError(frames.CodeDenied,
				"the NATS server at %s does not let identity %s in%s: %w", at, d.Identity, d.keyHint(), err)
		}
	}
	return frames.NewError(frames.CodeUnavailable,
		"no NATS server answers at %s: start one with weavebus up, or give the URL of one that runs: %w", at, err)
}

func (d Dial) keyHint() string {
	if d.SeedFile == "" {
		return ": no nkey seed file was given"
	}
	return fmt.Sprintf(": check that %s is the seed of this identity on this server", d.SeedFile)
}

// shownURL gives URLs without the passwords in them.
func shownURL(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err == nil:
			all[i] = u.Redacted()
		case strings.Contains(one, "@"):
			all[i] = "(a URL that cannot be read)"
		}
	}
	return strings.Join(all, ",")
}
