// SPDX-License-Identifier: Apache-2.0

package library

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Remote is what a server's driver exports, as the server tells.
type Remote struct {
	BuildID string
	CUDA    []string
	NVML    []string // empty: it has none
}

// Remote is the driver library of a machine without a GPU, as it was built: it exports all
// that the list of symbols has.
func (d Dir) Remote() string { return filepath.Join(string(d), "remote", CUDAName) }

// RemoteFor returns the driver library of a machine without a GPU, fitted to a server's
// driver: what that lacks is taken out. It lies in one of the cache folders, where it is made
// when it is missing, in the first that can be used. What the driver has and the list lacks
// has no signature, and stays out.
func (d Dir) RemoteFor(driver Remote, caches ...string) (Front, error) {
	id := driver.id()
	if built, err := quickID(d.Remote()); err == nil {
		if dir, err := cached(caches, keyOf(built, id)); err == nil {
			return Front{Dir: dir}, nil
		}
	}
	image, err := readImage(d.Remote(), false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: no remote/%s in %s", ErrNotFound, CUDAName, d)
		}
		return Front{}, fmt.Errorf("read the library for remote calls: %w", err)
	}
	key := keyOf(image.id, id)
	dir, err := cached(caches, key)
	if err == nil {
		return Front{Dir: dir}, nil
	}
	report, prepareErr := image.prepare(&Driver{Exports: append(append([]string{}, driver.CUDA...), driver.NVML...)})
	if prepareErr != nil {
		return Front{}, fmt.Errorf("fit the library for remote calls: %w", prepareErr)
	}
	failed := err
	if errors.Is(err, fs.ErrNotExist) {
		failed = errNoCache
	}
	for _, cache := range caches {
		err := publish(cache, key, image.data, len(driver.NVML) > 0)
		if err == nil {
			return Front{Dir: filepath.Join(cache, key), Report: report}, nil
		}
		if errors.Is(failed, errNoCache) {
			failed = err
		}
	}
	return Front{}, fmt.Errorf("fit the library for remote calls: %w", failed)
}

// id is another one for each driver, and for each list of names: no server can leave in the
// cache what another one would be taken for.
func (r Remote) id() []byte {
	var all bytes.Buffer
	fmt.Fprintf(&all, "remote %q\n", r.BuildID)
	for _, names := range [][]string{r.CUDA, r.NVML} {
		for _, name := range names {
			all.WriteString(name)
			all.WriteByte('\n')
		}
		all.WriteByte(0)
	}
	sum := sha256.Sum256(all.Bytes())
	return sum[:]
}
