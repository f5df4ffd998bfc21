# Of a gdrdrv-dkms that is removed and not purged the init script stays, and what starts it at boot; it
# puts a node of its own, with its own mode, in the place of /dev/gdrdrv. If that package is
# installed again, it makes the links again. systemd: the masked unit gdrdrv.service of this package.
if [ "$1" = configure ] && [ -e /etc/init.d/gdrdrv ] && [ -x /usr/sbin/update-rc.d ] &&
   [ "$(dpkg-query -W -f '${db:Status-Status}' gdrdrv-dkms 2>/dev/null)" != installed ]; then
	update-rc.d -f gdrdrv remove >/dev/null
fi
