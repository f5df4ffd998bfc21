# A gdrdrv-dkms that was removed but not purged leaves its init script and the links that start it
# at boot. The script would replace /dev/gdrdrv by a node with another mode. This removes the links;
# that package restores them when it is installed again. For systemd gdrdrv.service is masked.
if [ "$1" = configure ] && [ -e /etc/init.d/gdrdrv ] && [ -x /usr/sbin/update-rc.d ] &&
   [ "$(dpkg-query -W -f '${db:Status-Status}' gdrdrv-dkms 2>/dev/null)" != installed ]; then
	update-rc.d -f gdrdrv remove >/dev/null
fi
