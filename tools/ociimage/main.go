// SPDX-License-Identifier: Apache-2.0

// Command ociimage writes a container image of one layer as an archive in the layout of
// the Open Container Initiative, without a registry, a daemon or root. The same files
// give the same bytes.
//
//	ociimage -o pause.tar -name divvy.local/pause:1 -entrypoint /pause build/pause=/pause
//
// Each argument is FILE=PATH or FOLDER=PATH; owners are root, times are the epoch. An
// archive is read by `ctr images import`, `podman load`, `skopeo` and their like.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor names a blob of the archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func main() {
	out := flag.String("o", "", "archive to write")
	name := flag.String("name", "", "name of the image, like divvy.local/pause:1")
	entrypoint := flag.String("entrypoint", "", "program and arguments, separated by blanks")
	env := flag.String("path", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PATH in the container")
	flag.Parse()
	if err := write(*out, *name, strings.Fields(*entrypoint), []string{"PATH=" + *env}, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage: error:", err)
		os.Exit(1)
	}
}

func write(out, name string, entrypoint, env, sources []string) error {
	if out == "" || name == "" || len(sources) == 0 {
		return errors.New("say -o, -name and FILE=PATH")
	}
	layer, err := os.CreateTemp(filepath.Dir(out), ".layer")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), sources); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))

	file, err := os.CreateTemp(filepath.Dir(out), ".image")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	archive := tar.NewWriter(file)
	blob := func(kind string, document any) (descriptor, error) {
		raw, err := json.Marshal(document)
		if err != nil {
			return descriptor{}, err
		}
		sum := sha256.Sum256(raw)
		d := descriptor{MediaType: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(raw))}
		return d, add(archive, blobPath(d.Digest), d.Size, bytes.NewReader(raw))
	}
	config, err := blob(typeConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": entrypoint, "Env": env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
	})
	if err != nil {
		return err
	}
	if err := add(archive, blobPath(digest), size, layer); err != nil {
		return err
	}
	manifest, err := blob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config,
		"layers": []descriptor{{MediaType: typeLayer, Digest: digest, Size: size}},
	})
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(path.Base(name), ":")
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	for _, part := range []struct{ name, text string }{{"oci-layout", `{"imageLayoutVersion":"1.0.0"}`}, {"index.json", string(index)}} {
		if err := add(archive, part.name, int64(len(part.text)), strings.NewReader(part.text)); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), file.Chmod(0o644)); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}

func blobPath(digest string) string {
	return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:")
}

func add(archive *tar.Writer, name string, size int64, from io.Reader) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := io.Copy(archive, from)
	return err
}

// entry is one file of the layer, by its path in the container.
type entry struct{ from, to string }

// writeLayer writes all files in the order of their paths, each folder before what is in it.
func writeLayer(to io.Writer, sources []string) error {
	entries := map[string]string{}
	for _, source := range sources {
		from, at, ok := strings.Cut(source, "=")
		if !ok {
			return fmt.Errorf("%s is not FILE=PATH", source)
		}
		at = strings.TrimPrefix(path.Clean("/"+at), "/")
		err := filepath.WalkDir(from, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			below, err := filepath.Rel(from, name)
			if err != nil {
				return err
			}
			if full := path.Join(at, filepath.ToSlash(below)); full != "." && full != "" {
				entries[full] = name
			}
			return nil
		})
		if err != nil {
			return err
		}
		for parent := path.Dir(at); parent != "."; parent = path.Dir(parent) {
			if _, known := entries[parent]; !known {
				entries[parent] = ""
			}
		}
	}
	sorted := make([]entry, 0, len(entries))
	for at, from := range entries {
		sorted = append(sorted, entry{from, at})
	}
	slices.SortFunc(sorted, func(a, b entry) int { return strings.Compare(a.to, b.to) })
	layer := tar.NewWriter(to)
	for _, e := range sorted {
		if err := writeEntry(layer, e); err != nil {
			return fmt.Errorf("%s: %w", e.to, err)
		}
	}
	return layer.Close()
}

func writeEntry(layer *tar.Writer, e entry) error {
	if e.from == "" { // a folder that is nobody's
		return layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: e.to + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
	}
	info, err := os.Lstat(e.from)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(e.from); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	mode := header.Mode
	*header = tar.Header{Typeflag: header.Typeflag, Name: e.to, Linkname: link, Size: header.Size, Mode: mode, ModTime: time.Unix(0, 0)}
	switch header.Typeflag {
	case tar.TypeDir:
		header.Name += "/"
	case tar.TypeReg, tar.TypeSymlink:
	default:
		return errors.New("neither file, folder nor link")
	}
	if err := layer.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	file, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(layer, file)
	return err
}
