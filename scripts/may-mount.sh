# To be sourced: may tests mount a small file system? Where not, they are told to leave out those on a full disk.
probe=$(mktemp -d)
if [ "${ENSUE_TEST_NO_MOUNT:-}" != 1 ] && mount -t tmpfs -o size=1m tmpfs "$probe" 2>/dev/null; then
    umount "$probe"
    echo "yes"
else
    export ENSUE_TEST_NO_MOUNT=1
    echo "no: the tests on a full disk are not run (ENSUE_TEST_NO_MOUNT=1); as root they are"
fi
rmdir "$probe"
