// SPDX-License-Identifier: Apache-2.0

// Command protogen writes the Go code of a .proto file beside it, as protoc
// would with the plugins protoc-gen-go and protoc-gen-go-grpc. Compiler and
// plugins are pinned in this module and run from source, so that nobody needs to
// install protoc.
//
//	go run ./protogen ROOT FILE
//
// FILE is its path below ROOT, the name by which other files import it and by
// which the program that links it registers it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: protogen ROOT FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "protogen %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}

func generate(root, name string) error {
	request, err := compile(root, name)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		files, err := run(plugin, request)
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile reads a .proto file and says what a plugin has to know of it.
func compile(root, name string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // with the comments
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      closure(files[0], map[string]bool{}),
	}, nil
}

// closure is a file behind all that it imports.
func closure(f protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return nil
	}
	seen[f.Path()] = true
	var files []*descriptorpb.FileDescriptorProto
	for i := range f.Imports().Len() {
		files = append(files, closure(f.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(files, protoutil.ProtoFromFileDescriptor(f))
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, errors.New(response.GetError())
	}
	return response.File, nil
}
