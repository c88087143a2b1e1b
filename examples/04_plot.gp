# 04_plot.gp -- two pictures of what 04_train_digits wrote with --out: histogram.png and accuracy.png.
#
#     gnuplot -e "dir='build/demo'" examples/04_plot.gp
#
# Needs gnuplot 5.2 or newer with the pngcairo terminal. All numbers come from results.csv and
# histogram.csv. The colours are those of Okabe and Ito, which colour-blind readers can tell apart.

if (!exists("dir")) dir = 'build/demo'
results = dir . '/results.csv'
hist = dir . '/histogram.csv'

set datafile separator ','
set encoding utf8
set terminal pngcairo size 1600,900 font 'Sans,19' background rgb 'white'
set tics nomirror out scale 0.7 textcolor rgb '#222222'
set title font 'Sans Bold,24' textcolor rgb '#222222' offset 0,0.7
set style fill solid 0.85 noborder
unset key

orange = '#D55E00'; blue = '#0072B2'; green = '#009E73'; grey = '#777777'

# The lines of the table, in its order; nth finds the place of one by its name.
id(n) = word("fp32 fp16_x1 fp16_x8 fp16_x128 fp16_x1024 fp16_dynamic bf16 fp16_no_master", n)
nth(s) = sum [n = 1:8] (s eq id(n) ? n : 0)
FP32 = nth('fp32'); X1 = nth('fp16_x1'); X1024 = nth('fp16_x1024'); DYNAMIC = nth('fp16_dynamic')

# Per line: accuracy over all seeds; and of seed 1, whose gradients are drawn, accuracy and share lost.
array average[8]
array least[8]
array most[8]
array first[8]
array lost[8]
array scale[8]
do for [n = 1:8] {
    stats results using (strcol(1) eq id(n) ? 100 * $3 : NaN) every ::1 nooutput
    average[n] = STATS_mean; least[n] = STATS_min; most[n] = STATS_max
    stats results using (strcol(1) eq id(n) && $2 == 1 ? 100 * $3 : NaN) every ::1 nooutput
    first[n] = STATS_mean
    stats results using (strcol(1) eq id(n) && $2 == 1 ? 100 * $4 : NaN) every ::1 nooutput
    lost[n] = STATS_mean
    stats results using (strcol(1) eq id(n) && $2 == 1 ? log($7) / log(2) : NaN) every ::1 nooutput
    scale[n] = STATS_mean
}

# ---- histogram.png: the gradients against FP16's window ----

# Where the zones of FP16 begin: 0 becomes zero, 1 subnormal, 2 normal, 3 overflow.
array zone[4]
do for [z = 0:3] {
    stats hist using ($5 == z ? $1 : NaN) every ::1 nooutput
    zone[z + 1] = STATS_min
}
stats hist using 1 every ::1 nooutput
left = zone[1]; right = STATS_max + 1
middle(a, b) = (a + b) / 2.0

# Column c of the histogram: its highest bar, and where that stands; the labels go above it.
array peak[4]
array peak_at[4]
do for [c = 2:4] {
    stats hist using (column(c)) every ::1 nooutput
    peak[c] = STATS_max
    stats hist using 1:(column(c)) every ::1 nooutput
    peak_at[c] = STATS_pos_max_y + 0.5
}
top = 1.5 * peak[2]

set output dir . '/histogram.png'
set title sprintf("FP16 alone turns %.0f%% of these gradients into zero; a loss scale saves them", lost[X1])
set border 1 lw 1.5 lc rgb '#444444'
set xrange [left:right]
set yrange [0:top]
set xlabel 'magnitude of activation gradient × loss scale; height: share of them (one run each, seed 1)' \
    offset 0,-0.4
set format x '2^{%.0f}'
set xtics 4
unset ytics
set margins 3, 3, 4.7, 4

set object 1 rectangle from left, 0 to zone[2], top fc rgb '#DCDCDC' fs solid noborder behind
set object 2 rectangle from zone[2], 0 to zone[3], top fc rgb '#FFF4D1' fs solid noborder behind
set object 3 rectangle from zone[4], 0 to right, top fc rgb '#DCDCDC' fs solid noborder behind
do for [z = 2:4] {
    set arrow z from zone[z], 0 to zone[z], top nohead lw 1.5 dt 2 lc rgb grey
}
high = 0.95 * top; low = 0.90 * top
set label 1 'becomes 0' at middle(left, zone[2]), high center font 'Sans Bold,21' textcolor rgb '#444444'
set label 2 'FP16 subnormal' at middle(zone[2], zone[3]), high center font 'Sans Bold,21' \
    textcolor rgb '#6B5000'
set label 3 'bits are lost' at middle(zone[2], zone[3]), low center textcolor rgb '#6B5000'
set label 4 'FP16 normal' at middle(zone[3], zone[4]), high center font 'Sans Bold,21' textcolor rgb '#444444'
set label 5 'full precision' at middle(zone[3], zone[4]), low center textcolor rgb '#444444'
set label 6 'Inf' at middle(zone[4], right), high center font 'Sans Bold,21' textcolor rgb '#444444'

note(n) = sprintf("%.1f%% become 0\ntest accuracy %.0f%%", lost[n], first[n])
down = 0.044 * top
x = middle(left, zone[2]) - 0.5; y = 0.9 * peak[2]              # beside the bars, inside its zone
set label 7 'no scale' at x, y center font 'Sans Bold,21' textcolor rgb '#A34700'
set label 8 note(X1) at x, y - down center textcolor rgb '#A34700'
x = middle(zone[2], zone[3]); y = peak[3] + 0.125 * top         # above the bars
set label 9 'scale 1024' at x, y center font 'Sans Bold,21' textcolor rgb '#005A8F'
set label 10 note(X1024) at x, y - down center textcolor rgb '#005A8F'
x = peak_at[4] - 4; y = peak[4] + 0.125 * top
set label 11 sprintf("dynamic scale, in the end 2^{%.0f}", scale[DYNAMIC]) at x, y center \
    font 'Sans Bold,21' textcolor rgb '#00664E'
set label 12 note(DYNAMIC) at x, y - down center textcolor rgb '#00664E'

set boxwidth 0.9
plot hist using ($1 + 0.5):4 every ::1 with boxes lc rgb green, \
     hist using ($1 + 0.5):2 every ::1 with boxes lc rgb orange, \
     hist using ($1 + 0.5):3 every ::1 with boxes lc rgb blue
unset output
unset object
unset arrow
unset label

# ---- accuracy.png: one bar for each line of the table ----

name(n) = n == 1 ? 'FP32' : n == 2 ? "FP16\nno scale" : n == 3 ? "FP16\nscale 8" \
        : n == 4 ? "FP16\nscale 128" : n == 5 ? "FP16\nscale 1024" : n == 6 ? "FP16\ndynamic scale" \
        : n == 7 ? "BF16\nno scale" : "FP16, no\nFP32 weights"
colour(n) = n == FP32 ? 0x777777 : average[n] < average[FP32] - 10 ? 0xD55E00 : 0x0072B2

set output dir . '/accuracy.png'
set title sprintf("FP32 reads %.0f%% of the digits, FP16 alone %.0f%%, FP16 with a loss scale %.0f%%", \
                  average[FP32], average[X1], average[DYNAMIC])
set border 0
set xrange [0.45:8.55]
set yrange [0:106]
set xlabel 'test accuracy: mean over the seeds (bar, number), least and most (whisker); dashed: FP32' \
    offset 0,-2.3
unset xtics
unset ytics
set margins 3, 3, 6, 4
do for [n = 1:8] {
    set label n name(n) at n, -4 center textcolor rgb '#222222'
    set label 10 + n sprintf("%.1f%%", average[n]) at n, most[n] + 3.8 center font 'Sans Bold,21' \
        textcolor rgb colour(n)
    set arrow 10 + n from n, least[n] to n, most[n] heads size 0.05,90 lw 2.5 lc rgb '#222222' front
}
set arrow 1 from 0.5, average[FP32] to 8.5, average[FP32] nohead dt 2 lw 1.5 lc rgb grey back
set arrow 2 from 0.5, 0 to 8.5, 0 nohead lw 1.5 lc rgb '#444444' front
set boxwidth 0.7
plot for [n = 1:8] '+' using (n):(average[n]):(colour(n)) every ::0::0 with boxes lc rgb variable
