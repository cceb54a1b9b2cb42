#!/usr/bin/env bash
# Builds a real Kubernetes from Debian's source, in a folder of its own: `get.sh PLACE`, about eight minutes of two cores once.
# Packages are unpacked below PLACE, so the machine stays as it is; only tools for the build are installed, by root, if they miss.
# What an earlier run has done is left as it is. `rm -r PLACE` removes everything.
set -euo pipefail
place=$(realpath -m "${1:?where to?}")
parts="kube-apiserver kube-controller-manager kube-scheduler kubelet"
version=1.20.5+really1.20.2
source="$place/kubernetes-$version"
started=$SECONDS
say() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }
stop() { echo "$*" >&2; exit 1; }
quietly() { # shows what a step wrote only if it fails
  if ! "$@" > "$place/last.log" 2>&1; then tail -n 40 "$place/last.log" >&2; stop "Failed: $*"; fi
}
built() { for part in $parts etcd; do [ -x "$place/bin/$part" ] || return 1; done; [ -x "$place/containers/usr/bin/containerd" ]; }

if built; then echo "Kubernetes is in $place."; exit 0; fi
for tool in dpkg-source:dpkg-dev make:make gcc:gcc; do
  command -v "${tool%:*}" > /dev/null && continue
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    say "Installing ${tool#*:} …"
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "${tool#*:}" > /dev/null
  else
    stop "The build needs ${tool%:*}: as root, run apt-get install ${tool#*:}."
  fi
done
mkdir -p "$place/bin" "$place/apt" "$place/lists/partial" "$place/packages" "$place/nodes"
cd "$place"

# The machine's own mirror, with sources.
if [ -f /etc/apt/sources.list.d/debian.sources ]; then
  sed 's/^Types: .*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > apt/debian.sources
elif [ -f /etc/apt/sources.list ]; then
  sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list > apt/debian.list
else
  stop "There are no sources of apt: this builds from the packages of Debian 12."
fi
apt=(apt-get -q -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$place/apt" -o "Dir::State::Lists=$place/lists"
  -o "APT::Sandbox::User=root")
unpack() { # FOLDER INTO PACKAGE...
  local from="$place/$1" into="$place/$2"; shift 2
  (cd "$from" && quietly "${apt[@]}" download "$@")
  for package in "$from"/*.deb; do dpkg -x "$package" "$into"; done
}

say "Reading Debian's lists of packages …"
quietly "${apt[@]}" update
if [ ! -x bin/etcd ] || [ ! -d root/usr/share/go-1.19 ]; then
  say "Fetching etcd and Go (90 MB) …"
  unpack packages root etcd-server golang-1.19-go golang-1.19-src rsync libpopt0 libxxhash0
  cp root/usr/bin/etcd bin/.new && mv bin/.new bin/etcd
fi
if [ ! -x containers/usr/bin/containerd ]; then
  say "Fetching containerd, runc and networks for containers (36 MB) …"
  unpack nodes unpacked containerd runc containernetworking-plugins conntrack iptables \
    libnetfilter-conntrack3 libnfnetlink0 libip4tc2 libip6tc2 libnftnl11 libxtables12 libmnl0
  rm -rf containers && mv unpacked containers
fi
if [ ! -f "$source/.fetched" ]; then
  say "Fetching the source of Kubernetes $version (25 MB) …"
  rm -rf "$source"
  quietly "${apt[@]}" source "kubernetes=$version-1.1+deb12u1"
  # Lower scores than its own may be set with CAP_SYS_RESOURCE alone, which containers and small machines do not give.
  sed -i 's/int = -99[789]$/int = 0/' "$source/pkg/kubelet/qos/policy.go"
  touch "$source/.fetched"
fi
cd "$source"
# Debian's Go looks for its library where its package would put it.
export GOROOT="$place/root/usr/lib/go-1.19" GOCACHE="$place/cache" GOPATH="$place/go" GO111MODULE=off GOFLAGS=
for part in src api lib misc test; do
  there="$place/root/usr/share/go-1.19/$part"
  if [ -e "$there" ]; then rm -rf "${GOROOT:?}/$part" && cp -r "$there" "$GOROOT/$part"; fi
done
export PATH="$GOROOT/bin:$place/root/usr/bin:$PATH" LD_LIBRARY_PATH="$place/root/usr/lib/$(uname -m)-linux-gnu"
for part in $parts; do
  [ -x "$place/bin/$part" ] && continue
  say "Building $part …"
  # Without the clouds of vendors, which are a third of it.
  quietly make GOFLAGS=-tags=providerless WHAT="cmd/$part"
  # Put there by a rename: who is killed in the middle of a copy leaves nothing that looks built.
  cp "_output/bin/$part" "$place/bin/.new" 2> /dev/null || cp "_output/local/go/bin/$part" "$place/bin/.new"
  mv "$place/bin/.new" "$place/bin/$part"
done
# What was only needed for it: 3 GB.
rm -rf "$place/cache" "$place/go" "$source/_output"
say "Done: $place has $(du -sh "$place" | cut -f1)."
