#!/usr/bin/env bash
# Builds a real Kubernetes from Debian's source, in a folder of its own: `get.sh PLACE`, about five minutes once.
# It installs nothing on the machine: packages are unpacked below PLACE, and what is there already is left.
set -euo pipefail
place=$(realpath -m "${1:?where to?}")
parts="kube-apiserver kube-controller-manager kube-scheduler"
mkdir -p "$place/bin" "$place/apt" "$place/lists/partial" "$place/packages"
cd "$place"
missing=0
for part in $parts etcd; do [ -x "bin/$part" ] || missing=1; done
[ $missing = 1 ] || exit 0
for tool in apt-get dpkg-source make; do command -v "$tool" > /dev/null || {
  echo "This needs Debian's apt-get, dpkg-dev and make: it builds Debian's source of Kubernetes." >&2; exit 1; }; done
sed 's/^Types: .*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > apt/debian.sources
apt=(apt-get -q -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$place/apt" -o "Dir::State::Lists=$place/lists")
"${apt[@]}" update
(cd packages && "${apt[@]}" download etcd-server golang-1.19-go golang-1.19-src rsync libpopt0 libxxhash0)
rm -rf root
for package in packages/*.deb; do dpkg -x "$package" root; done
cp root/usr/bin/etcd bin/
[ -d kubernetes-1.20.5+really1.20.2 ] || "${apt[@]}" source kubernetes=1.20.5+really1.20.2-1.1+deb12u1
cd kubernetes-1.20.5+really1.20.2
# Debian's Go looks for its library where its package would put it.
export GOROOT="$place/root/usr/lib/go-1.19" GOCACHE="$place/cache" GOPATH="$place/go" GO111MODULE=off GOFLAGS=
rm -rf "$GOROOT/src" && cp -r "$place/root/usr/share/go-1.19/src" "$GOROOT/src"
for part in api lib misc test; do
  [ -e "$place/root/usr/share/go-1.19/$part" ] && rm -rf "${GOROOT:?}/$part" && cp -r "$place/root/usr/share/go-1.19/$part" "$GOROOT/$part"
done
export PATH="$GOROOT/bin:$place/root/usr/bin:$PATH" LD_LIBRARY_PATH="$place/root/usr/lib/$(uname -m)-linux-gnu"
what=""; for part in $parts; do what="$what cmd/$part"; done
# Without the clouds of vendors, which are a third of it.
make GOFLAGS=-tags=providerless WHAT="$what"
for part in $parts; do cp "_output/bin/$part" "$place/bin/" 2> /dev/null || cp "_output/local/go/bin/$part" "$place/bin/"; done
