// SPDX-License-Identifier: Apache-2.0

// Command mlp recognises digits on a GPU and answers over HTTP. It is a Go
// program of the driver API without cgo; see README.md.
//
//	mlp [--listen 127.0.0.1:8080]
//	mlp --check [--json] [--size N]     compares N answers with the CPU's
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mlp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:8080", "address to answer on")
	compare := flag.Bool("check", false, "compare with the CPU instead")
	asJSON := flag.Bool("json", false, "with --check: print JSON")
	size := flag.Int("size", 1000, "with --check: how many images")
	file := flag.String("ptx", "", "kernels from this file instead")
	flag.Parse()
	if flag.NArg() > 0 || *size < 1 {
		flag.Usage()
		os.Exit(2)
	}
	model, err := readNetwork()
	if err != nil {
		return err
	}
	ptx := defaultPTX
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			return err
		}
		ptx = string(text)
	}
	device, err := startCard(ctx, model, ptx)
	if err != nil {
		return err
	}
	if *compare {
		return checkCard(ctx, device, model, *size, *asJSON)
	}
	return serve(ctx, &server{card: device, model: model}, *listen)
}

func serve(ctx context.Context, s *server, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	// Port 0 stands for any: say which one it became.
	fmt.Printf("listening on http://%s\n", listener.Addr())
	httpServer := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	var ending sync.WaitGroup
	ending.Go(func() {
		<-ctx.Done()
		_ = httpServer.Close()
	})
	err = httpServer.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		ending.Wait()
		return nil
	}
	return err
}

// outcome is what the other examples print with --json too.
type outcome struct {
	Schema           string  `json:"schema"`
	Example          string  `json:"example"`
	Device           string  `json:"device"`
	Values           int     `json:"values"`
	Wrong            int     `json:"wrong"`
	MaxRelativeError float64 `json:"maxRelativeError"`
	Checksum         string  `json:"checksum"`
	Correct          bool    `json:"correct"`
}

// checkCard classifies images of known digits, one after the other.
func checkCard(ctx context.Context, c *card, model network, count int, asJSON bool) error {
	o := outcome{Schema: "divvy.example/v1", Example: "mlp", Device: c.Name, Values: count}
	sum := fnv.New64a()
	for i := range count {
		image, err := sample(i)
		if err != nil {
			return err
		}
		a, err := c.classify(ctx, image)
		if err != nil {
			return err
		}
		d := a.probabilities.Distance(model.cpu(image))
		if d > Tolerance {
			o.Wrong++
		}
		o.MaxRelativeError = min(max(o.MaxRelativeError, d), 1e300) // JSON has no infinity
		if err := binary.Write(sum, binary.LittleEndian, a.probabilities); err != nil {
			return err
		}
	}
	o.Checksum, o.Correct = fmt.Sprintf("%016x", sum.Sum64()), o.Wrong == 0
	switch {
	case asJSON:
		if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
			return err
		}
	case o.Correct:
		fmt.Printf("mlp on %s: %d images, all as on the CPU (within %.2g), checksum %s\n", c.Name, count, o.MaxRelativeError, o.Checksum)
	default:
		fmt.Printf("mlp on %s: %d images, %d WRONG, checksum %s\n", c.Name, count, o.Wrong, o.Checksum)
	}
	if !o.Correct {
		os.Exit(1)
	}
	return nil
}
