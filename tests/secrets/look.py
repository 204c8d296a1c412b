# Looks at everything that a program could look at for the forms of a value that it was never shown: its variables and those of all processes,
# its memory, all files that it can read, and what the host says to it. `needles` holds the forms, each backwards.
import os, sys, urllib.request
key = os.environ["KEY"]
def ask(path):
    request = urllib.request.Request(sys.argv[1] + path, headers={"Authorization": "Bearer " + key})
    answer = urllib.request.urlopen(request)
    return repr(answer.headers.items()) + answer.read().decode()
seen = [ask("/private/greeting")] + [ask("/echo" + form) for form in ["", "/base64", "/hex", "/url"]]
assert "come in" in seen[0], seen
blobs = {"answers": "\n".join(seen).encode()}
for process in [name for name in os.listdir("/proc") if name.isdigit()]:
    for part in ["environ", "cmdline"]:
        try: blobs[process + part] = open(f"/proc/{process}/{part}", "rb").read()
        except OSError: pass
for top in ["/etc", "/tmp", "/run", "/dev/shm", "/var", os.getcwd()]:
    for place, _, names in os.walk(top):
        for name in names:
            path = os.path.join(place, name)
            try:
                if os.path.isfile(path) and name != "needles": blobs[path] = open(path, "rb").read()
            except OSError: pass
memory = open("/proc/self/mem", "rb", 0)
for line in open("/proc/self/maps"):
    span, rights = line.split()[:2]
    if "r" not in rights or "[v" in line: continue
    start, end = (int(part, 16) for part in span.split("-"))
    if end - start > 1 << 28: continue
    try:
        memory.seek(start)
        blobs["memory " + span] = memory.read(end - start)
    except (OSError, ValueError): pass
# The needles are known backwards until all has been read, so that looking for them does not put them here.
wanted = [needle[::-1].encode() for needle in open("needles").read().split()]
found = [(name, index) for name, blob in blobs.items() for index, needle in enumerate(wanted) if needle in blob]
print(len(blobs) > 30, found, key.startswith("palyraplaceholder"))
