package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	id, err := makeIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(id.ca.cert)

	server, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"} {
		if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("the server's certificate does not hold for %s: %v", name, err)
		}
	}
	proxy, err := tls.LoadX509KeyPair(filepath.Join(dir, "front-proxy-client.crt"), filepath.Join(dir, "front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	clientUse := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := proxy.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: clientUse}); err == nil {
		t.Error("the front proxy must not be a client that the cluster's own authority vouches for")
	}
	for _, name := range []string{"ca", "sa", "admin", "etcd-client"} {
		info, err := os.Stat(filepath.Join(dir, name+".key"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s.key must be there, for its owner alone: %v, %v", name, info, err)
		}
	}
}

func TestKubeconfigOfUser(t *testing.T) {
	ca, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.client("alice", "dev", "ops")
	if err != nil {
		t.Fatal(err)
	}
	text, err := kubeconfig("https://127.0.0.1:1", ca.certPEM, "alice", cert, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	subject := parsed.Leaf.Subject
	if subject.CommonName != "alice" || len(subject.Organization) != 2 {
		t.Errorf("the certificate is of %v", subject)
	}
}
