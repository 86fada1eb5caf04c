# What firewalld makes with Debian's defaults, and for the sources that the firewall plugin names in the zone "trusted".

mkdir -p /run/dbus
dbus-daemon --system --fork
firewalld --nofork --nopid >/tmp/firewalld.log 2>&1 &
firewalld=$!
until firewall-cmd --state >/dev/null 2>&1; do
  kill -0 $firewalld || { cat /tmp/firewalld.log >&2; exit 1; }
  sleep 0.1
done
save_nft firewalld firewalld
for source in 10.1.0.2/32 fd01::2/128; do firewall-cmd --zone=trusted --add-source=$source >/dev/null; done
save_nft firewalld-with-container firewalld
kill $firewalld
wait $firewalld || :
