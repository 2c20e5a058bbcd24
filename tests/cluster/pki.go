package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// authority is a certificate authority made for one instance; its key never leaves the instance's directory.
type authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, certPEM: pemBlock("CERTIFICATE", der)}, nil
}

// server signs a serving certificate for the loopback names and the in-cluster names of the API server.
func (a *authority) server(name string) (pair, error) {
	template := certTemplate(pkix.Name{CommonName: name})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)}
	return a.sign(template)
}

// client signs a certificate that the API server takes as this user in these groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := keyPEM(key)
	return pair{cert: pemBlock("CERTIFICATE", der), key: keyPEM}, err
}

func certTemplate(name pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    time.Now().Add(-time.Hour), // clocks of containers and hosts differ a little
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

// identity is everything that an instance proves itself with.
type identity struct {
	ca         *authority
	frontProxy *authority
	admin      pair
	tls        *tls.Config // for asking our own parts whether they are well
	storage    *tls.Config // for etcd, as the API server
}

// makeIdentity writes the CA, the parts' certificates and the ServiceAccount keys under dir.
func makeIdentity(dir string) (*identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := newAuthority("pointsman-cluster")
	if err != nil {
		return nil, err
	}
	// The front proxy has an authority of its own: whoever it signs for may claim any user name.
	frontProxy, err := newAuthority("pointsman-cluster-front-proxy")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"ca.crt": ca.certPEM, "front-proxy-ca.crt": frontProxy.certPEM}
	if files["ca.key"], err = keyPEM(ca.key); err != nil {
		return nil, err
	}
	serviceAccounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if files["sa.key"], err = keyPEM(serviceAccounts); err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(serviceAccounts.Public())
	if err != nil {
		return nil, err
	}
	files["sa.pub"] = pemBlock("PUBLIC KEY", public)

	add := func(name string, p pair, err error) error {
		files[name+".crt"], files[name+".key"] = p.cert, p.key
		return err
	}
	server, serverErr := ca.server("pointsman-cluster-server")
	etcd, etcdErr := ca.client("etcd-client")
	proxy, proxyErr := frontProxy.client("front-proxy-client")
	admin, adminErr := ca.client("admin", "system:masters")
	for _, err := range []error{
		add("server", server, serverErr), add("etcd-client", etcd, etcdErr),
		add("front-proxy-client", proxy, proxyErr), add("admin", admin, adminErr),
	} {
		if err != nil {
			return nil, err
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	// controller-runtime looks for these two names in a certificate directory.
	for name, data := range map[string][]byte{"tls.crt": server.cert, "tls.key": server.key} {
		webhooks := filepath.Join(dir, "webhooks")
		if err := os.MkdirAll(webhooks, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(webhooks, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	adminPair, err := tls.X509KeyPair(admin.cert, admin.key)
	if err != nil {
		return nil, err
	}
	etcdPair, err := tls.X509KeyPair(etcd.cert, etcd.key)
	if err != nil {
		return nil, err
	}
	return &identity{
		ca: ca, frontProxy: frontProxy, admin: admin,
		tls:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{adminPair}},
		storage: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{etcdPair}},
	}, nil
}

// kubeconfig renders a kubeconfig for a client certificate or, when token is not empty, for a bearer token.
func kubeconfig(server string, ca []byte, user string, p pair, token string) ([]byte, error) {
	auth := clientcmd.AuthInfo{Token: token}
	if token == "" {
		auth = clientcmd.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	}
	config := clientcmd.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "pointsman",
		Clusters:  []clientcmd.NamedCluster{{Name: "pointsman", Cluster: clientcmd.Cluster{Server: server, CertificateAuthorityData: ca}}},
		AuthInfos: []clientcmd.NamedAuthInfo{{Name: user, AuthInfo: auth}},
		Contexts:  []clientcmd.NamedContext{{Name: "pointsman", Context: clientcmd.Context{Cluster: "pointsman", AuthInfo: user, Namespace: "default"}}},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("can't write the kubeconfig of %s: %w", user, err)
	}
	return bytes.TrimLeft(text, "\n"), nil
}
