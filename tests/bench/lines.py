"""Two hundred command lines as people and models write them, to measure decisions with."""

_ALONE = r"""
ls
ls -la src
cat README.md
head -n 40 src/main.py
tail -5 notes.txt
wc -l *.py
git status
git log --oneline -10
git log --since="2 weeks ago" --format='%h %an %s' -- src
git diff --stat HEAD~3
git show HEAD:src/main.py
git branch -a
rg -n "def main" src
rg --files -g '*.py'
grep -rn "TODO" src --include=*.py
grep -c '^import' src/main.py
find . -name '*.py' -not -path './.git/*'
find src -type f -mtime -7
sed -n '10,40p' src/main.py
awk '{ print $1, $3 }' data.csv
awk -F, 'NR > 1 { sum += $2 } END { print sum }' data.csv
sort -u notes.txt
cut -d, -f1,3 data.csv
jq '.name, .version' package.json
diff -u a.txt b.txt
stat -c '%s %n' notes.txt
du -sh src
df -h .
file a.b64
tree -L 2
echo "$HOME"
echo "lines: $(wc -l < notes.txt)"
printf '%s\n' one two three
pwd
date +%F
env | grep PATH
which python3
python3 --version
python3 -c 'print(1 + 1)'
python3 -m pytest -q tests
make -n all
npm test
cargo build --release
go vet ./...
docker ps -a
kubectl get pods -n web
curl -s https://example.com/api/v1/items
tar tzf t.tar.gz
unzip -l t.zip
md5sum notes.txt a.txt
xxd notes.gz
base64 -d a.b64
test -f README.md
[ -d src ]
[[ -f README.md && ! -d build ]]
rm -rf build dist
mkdir -p out/logs
cp a.txt out/a.txt
mv out/a.txt out/b.txt
touch out/stamp
chmod +x run.sh
git add -A
git commit -m "Mend the reader's 'if'"
git push origin main
pip install -r requirements.txt
x=$(git rev-parse --short HEAD)
export LC_ALL=C
for f in src/*.py; do wc -l "$f"; done
while read -r line; do echo "$line"; done < notes.txt
if [ -f Makefile ]; then make -n; else echo none; fi
""".strip("\n").split("\n")

LINES = (
    *_ALONE,
    *(f"cd src && {line} 2>/dev/null" for line in _ALONE),
    *(f'{line} | head -20 | sort; echo "done: $?"' for line in _ALONE),
)

WORST = {
    "1 MB of words": "a " * (1 << 19),
    "1 MB of `$(`": "$(" * (1 << 19),
    "1 MB in quotes": "echo '" + "x" * (1 << 20) + "'",
    "990 words": "cat " + "a.txt " * 990,
    "480 commands": "ls;" * 480,
    "330 in a pipeline": " | ".join(["cat x"] * 330),
    "190 substitutions": "echo " + "$(a) " * 190,
    "990 files": "cat " + " ".join(f"d{number}/f" for number in range(990)),
    "7 loops in each other": "for v in a b; do " * 7 + "x=$x$v; cat $x" + "; done" * 7,
    "450 folders in each other": "git " + "-C a " * 450 + "log",
    "an array doubled 20 times": "a=(b c); " + 'a=("${a[@]}" "${a[@]}"); ' * 20 + 'ls "${a[@]}"',
    "a here-document of 7,000 lines": "cat <<E\n" + "x\n" * 7000 + "E",
    "3,000 redirections": "cat " + "<f " * 3000,
    "7,000 variables in a word": "ls " + "$x" * 7000,
    "a script of 4 KB, 200 times": "x='" + "ls; " * 900 + "'; " + 'bash -c "$x"; ' * 200,
}
