# What ufw makes with Debian's defaults and one open port.

ufw allow 22/tcp >/dev/null
ufw --force enable >/dev/null
save_iptables ufw ufw
