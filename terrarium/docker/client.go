//go:build linux

package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"tendril/fault"
)

// daemon is one Docker daemon of this host. This file is the only one that knows the
// client library, which changes with each of its releases.
type daemon struct {
	api    *client.Client
	socket string
}

// dial returns a daemon that nobody has spoken to yet. host is unix:///PATH.
func dial(host string) (*daemon, error) {
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok && strings.HasPrefix(host, "/") {
		return nil, fault.New(fault.Unavailable, "the Docker daemon %q is named by a path alone", host).
			WithHint("say what it is: DOCKER_HOST=unix://%s", host)
	}
	if !ok || !strings.HasPrefix(socket, "/") {
		return nil, fault.New(fault.Unavailable, "the Docker daemon %q is not on a Unix socket", host).
			WithRule("a boundary is read back on the host that it is on").
			WithHint("name the socket of a daemon of this host: DOCKER_HOST=unix:///var/run/docker.sock")
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	}
	api, err := client.New(client.WithHost(host), client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the Docker daemon %s: %w", host, err)
	}
	return &daemon{api: api, socket: socket}, nil
}

// leastAPI is the oldest version of the interface in which all that a boundary needs can be
// asked for: control group namespaces came with it.
const leastAPI, leastDocker = "1.41", "20.10"

// ping agrees on the version to speak.
func (d *daemon) ping(ctx context.Context) error {
	answer, err := d.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true, ForceNegotiate: true})
	if err == nil && answer.APIVersion == "" || err != nil && strings.Contains(err.Error(), "malformed HTTP") {
		return fault.New(fault.Unavailable, "what listens on %s is no Docker daemon", d.socket).
			WithHint("name the socket of a Docker daemon in DOCKER_HOST")
	}
	if err == nil && older(answer.APIVersion, leastAPI) {
		err = fmt.Errorf("its interface is of version %q, and %s is needed", answer.APIVersion, leastAPI)
	}
	return d.explain("asking the Docker daemon for its version", err)
}

// older compares versions such as 1.41.
func older(version, least string) bool {
	number := func(s string) (n [2]int) {
		major, minor, _ := strings.Cut(s, ".")
		n[0], _ = strconv.Atoi(major) // what is no number is older than all
		n[1], _ = strconv.Atoi(minor)
		return n
	}
	v, l := number(version), number(least)
	return slices.Compare(v[:], l[:]) < 0
}

func (d *daemon) info(ctx context.Context) (system.Info, error) {
	result, err := d.api.Info(ctx, client.InfoOptions{})
	return result.Info, d.explain("asking the Docker daemon what it can do", err)
}

// explain says who did not answer, and what a person can do.
func (d *daemon) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	f := fault.New(fault.Unavailable, "%s (%s): %w", doing, d.socket, err)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return f.WithHint("start Docker, or name the socket of its daemon in DOCKER_HOST")
	case errors.Is(err, os.ErrPermission), strings.Contains(err.Error(), "permission denied while trying to connect"):
		return f.WithHint("the socket belongs to root and its group: add this account to the group docker, which makes it as powerful as root, or run as root")
	case errors.Is(err, syscall.ECONNREFUSED), client.IsErrConnectionFailed(err):
		return f.WithHint("the daemon that made the socket is gone: start Docker")
	case strings.Contains(err.Error(), "minimum supported API version"), strings.Contains(err.Error(), leastAPI+" is needed"):
		return f.WithHint("install Docker %s or newer", leastDocker)
	}
	return f
}

// importImage makes an image of a tar.
func (d *daemon) importImage(ctx context.Context, name string, labels map[string]string, tar io.Reader) error {
	var changes []string
	for key, value := range labels {
		changes = append(changes, fmt.Sprintf("LABEL %s=%q", key, value))
	}
	repository, tag, _ := strings.Cut(name, ":")
	answer, err := d.api.ImageImport(ctx, client.ImageImportSource{Source: tar, SourceName: "-"}, repository, client.ImageImportOptions{Tag: tag, Changes: changes})
	if err != nil {
		return d.explain("giving the Docker daemon the image "+name, err)
	}
	defer answer.Close()
	// A failure after the start of the answer is a message in it.
	lines := json.NewDecoder(io.LimitReader(answer, maxAnswer))
	for {
		var line struct {
			Error string `json:"error"`
		}
		err := lines.Decode(&line)
		if err == io.EOF {
			return nil
		}
		if err == nil && line.Error != "" {
			err = errors.New(line.Error)
		}
		if err != nil {
			return d.explain("giving the Docker daemon the image "+name, err)
		}
	}
}

// maxAnswer bounds what is read of an answer that comes in lines.
const maxAnswer = 1 << 20

// errNoImage says that the daemon does not have the image that a container is to be of.
var errNoImage = errors.New("no such image")

// create makes a container that does not run yet.
func (d *daemon) create(ctx context.Context, name string, config *container.Config, host *container.HostConfig) (id string, err error) {
	made, err := d.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: host})
	if errdefs.IsNotFound(err) && strings.Contains(err.Error(), config.Image) {
		return "", fmt.Errorf("%w: %w", errNoImage, err)
	}
	return made.ID, d.explain("making a container", err)
}

// attach connects to the standard streams of a container that does not run yet.
func (d *daemon) attach(ctx context.Context, id string) (net.Conn, io.Reader, error) {
	attached, err := d.api.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, nil, d.explain("attaching to a container", err)
	}
	return attached.Conn, attached.Reader, nil
}

func (d *daemon) start(ctx context.Context, id string) error {
	_, err := d.api.ContainerStart(ctx, id, client.ContainerStartOptions{})
	return d.explain("starting a container", err)
}

func (d *daemon) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	result, err := d.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	return result.Container, d.explain("reading a container back", err)
}

// kill ends what runs in a container. One that has ended is no error.
func (d *daemon) kill(ctx context.Context, id string) error {
	_, err := d.api.ContainerKill(ctx, id, client.ContainerKillOptions{})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return d.explain("ending a container", err)
}

const (
	// removeTime bounds a removal that does not come about.
	removeTime  = 30 * time.Second
	removeAgain = 20 * time.Millisecond
)

// remove ends and removes a container with whatever belongs to it alone. One that is gone
// is no error. That something was not found may be said of what runs in it, when it is just
// starting or ending, so the container itself is looked for.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeTime, errors.New("the daemon did not remove it"))
	defer cancel()
	again := time.NewTicker(removeAgain)
	defer again.Stop()
	for {
		_, err := d.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return d.explain("removing a container", err)
		}
		if _, gone := d.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{}); errdefs.IsNotFound(gone) {
			return nil
		}
		select {
		case <-ctx.Done():
			return d.explain("removing a container", fmt.Errorf("%w: %w", context.Cause(ctx), err))
		case <-again.C:
		}
	}
}

// stats reads once what a container uses.
func (d *daemon) stats(ctx context.Context, id string) (container.StatsResponse, error) {
	var stats container.StatsResponse
	result, err := d.api.ContainerStats(ctx, id, client.ContainerStatsOptions{})
	if err == nil {
		err = json.NewDecoder(io.LimitReader(result.Body, maxAnswer)).Decode(&stats)
		err = errors.Join(err, result.Body.Close())
	}
	return stats, d.explain("asking what a container uses", err)
}

// images lists the names of the images that bear a label and have one, the newest first.
func (d *daemon) images(ctx context.Context, label, value string) ([]string, error) {
	list, err := d.api.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", label+"="+value).Add("dangling", "false")})
	if err != nil {
		return nil, d.explain("listing images", err)
	}
	slices.SortStableFunc(list.Items, func(a, b image.Summary) int { return cmp.Compare(b.Created, a.Created) })
	var names []string
	for _, i := range list.Items {
		names = append(names, i.RepoTags...)
	}
	return names, nil
}

// nameless lists the images that bear a label and no name, and are older than a moment.
func (d *daemon) nameless(ctx context.Context, label, value string, before time.Time) ([]string, error) {
	list, err := d.api.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", label+"="+value).Add("dangling", "true")})
	if err != nil {
		return nil, d.explain("listing images", err)
	}
	var ids []string
	for _, i := range list.Items {
		if time.Unix(i.Created, 0).Before(before) {
			ids = append(ids, i.ID)
		}
	}
	return ids, nil
}

// layersOf lists the digests of what an image consists of.
func (d *daemon) layersOf(ctx context.Context, id string) ([]string, error) {
	result, err := d.api.ImageInspect(ctx, id)
	return result.RootFS.Layers, d.explain("reading an image back", err)
}

// forget removes an image, unless a container is made of it.
func (d *daemon) forget(ctx context.Context, name string) error {
	_, err := d.api.ImageRemove(ctx, name, client.ImageRemoveOptions{})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return d.explain("removing an image", err)
}

// labelled lists the containers, running or not, that bear all of the labels.
func (d *daemon) labelled(ctx context.Context, labels map[string]string) ([]container.Summary, error) {
	filters := client.Filters{}
	for key, value := range labels {
		filters.Add("label", key+"="+value)
	}
	list, err := d.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	return list.Items, d.explain("listing containers", err)
}
